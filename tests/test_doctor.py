"""``cevit doctor``: what is missing or does not fit is named, and where things were looked for."""

import sys

from cevit_lib.clinic import doctor
from cevit_lib.clinic.cli import main


def test_what_does_not_fit_and_what_is_missing_are_faults_with_their_remedies(
    monkeypatch, tmp_path, capsys
):
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('torchvision::nms is not there')")
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    found = doctor.installed
    monkeypatch.setattr(
        doctor, "installed", lambda name: None if name in ("scipy", "timm") else found(name)
    )
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    told = (
        "FAULT: torch and torchvision cannot be imported (RuntimeError: torchvision::nms",
        "install both in one command",
        "Packages",
        "FAULT: the core needs scipy: pip install cevit-lib",
        "not installed: timm (pip install 'cevit-lib[vit]')",
    )
    assert [words for words in told if words not in out] == []
    assert "FAULT: the core needs timm" not in out


def test_report_says_where_data_and_weights_were_looked_for(tmp_path, monkeypatch, capsys):
    (tmp_path / "data" / "grape").mkdir(parents=True)
    (tmp_path / "hub" / "models--timm--vit_tiny").mkdir(parents=True)
    monkeypatch.setenv("CEVIT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    assert main(["doctor", "--no-devices"]) == 0
    out = capsys.readouterr().out
    assert f"grape: found in {tmp_path / 'data' / 'grape'}" in out
    assert "papila: not found, looked in" in out and "timm/vit_tiny" in out
