"""What a file is, told by what it begins with whatever its name, and the way out of it."""

import io
import re
import zipfile
import zlib
from contextlib import suppress
from itertools import chain

CSV = "save it there as CSV (UTF-8) or as .xlsx"
STATISTICS = "export it as CSV with the program that made it (pandas: to_csv, R: write.csv)"
PHOTOGRAPH = "a photograph is no table: name the table by --csv and the folder by --images"
EXPORT = "export the photograph as PNG, TIFF or JPEG"
UNPACK = "unpack it and name what is inside"
WORKBOOK = "an Excel workbook (.xlsx)"
#: Place, bytes there, what the file is, the way out; the first line that fits counts.
MAGIC = [
    (0, b"PAR1", "a Parquet file", STATISTICS),
    (0, b"ARROW1", "an Arrow (Feather) file", STATISTICS),
    (0, b"FEA1", "a Feather file", STATISTICS),
    (0, b"Obj\x01", "an Avro file", STATISTICS),
    (0, b"\x89HDF\r\n", "an HDF5 file (pandas, MATLAB 7.3)", STATISTICS),
    (0, b"MATLAB 5.0", "a MATLAB file", STATISTICS),
    (0, b"\x93NUMPY", "a NumPy array", STATISTICS),
    (0, b"$FL2", "an SPSS file", STATISTICS),
    (0, b"$FL3", "an SPSS file (.zsav)", STATISTICS),
    (0, b"<stata_dta>", "a Stata file (.dta)", STATISTICS),
    *(
        (0, b"%c%c\1\0" % (k, e), "a Stata file (.dta)", STATISTICS)
        for k in b"lqrs"
        for e in (1, 2)
    ),
    (12, b"\xc2\xea\x81\x60", "a SAS file (.sas7bdat)", STATISTICS),
    (0, b"HEADER RECORD*******", "a SAS transport file (.xpt)", STATISTICS),
    (0, b"\xff\xff\0\0", "a JMP file", STATISTICS),
    (0, b"RDX2\n", "an R file (.RData)", STATISTICS),
    (0, b"RDX3\n", "an R file (.RData)", STATISTICS),
    *((0, mark, "an R file (.rds)", STATISTICS) for mark in (b"X\n\0\0\0", b"A\n2\n", b"A\n3\n")),
    (0, b"structure(list(", "an R object written as text", STATISTICS),
    (0, b"SQLite format 3\0", "an SQLite database", STATISTICS),
    (4, b"Standard Jet DB", "an Access database (.mdb)", STATISTICS),
    (4, b"Standard ACE DB", "an Access database (.accdb)", STATISTICS),
    *((0, b"\x80%c" % version, "a Python pickle", STATISTICS) for version in (2, 3, 4, 5)),
    *(
        (0, b"\t%c%c\0" % (a, b), "an Excel file of before 1995 (.xls)", CSV)
        for a, b in ((0, 4), (2, 6), (4, 6), (8, 8), (8, 16))
    ),
    (0, b"\0\0\2\0", "a Lotus 1-2-3 sheet", CSV),
    (0, b"TABLE\r\n0,1", "a DIF file", CSV),
    (0, b"{\\rtf", "a formatted text (RTF)", CSV),
    (0, b"%PDF", "a PDF", "export the table as CSV, a photograph as PNG, from where it came from"),
    (8, b"CR\2\0", "a camera's raw file (.cr2)", EXPORT),
    (0, b"FUJIFILMCCD-RAW", "a camera's raw file (.raf)", EXPORT),
    (0, b"IIRO", "a camera's raw file (.orf)", EXPORT),
    (0, b"IIU\0", "a camera's raw file (.rw2)", EXPORT),
    (0, b"\xff\xd8\xff", "a JPEG photograph", PHOTOGRAPH),
    (0, b"\x89PNG", "a PNG photograph", PHOTOGRAPH),
    (0, b"GIF8", "a GIF picture", PHOTOGRAPH),
    (0, b"II*\0", "a TIFF photograph", PHOTOGRAPH),
    (0, b"MM\0*", "a TIFF photograph", PHOTOGRAPH),
    (8, b"WEBP", "a WebP photograph", PHOTOGRAPH),
    (128, b"DICM", "a DICOM file", PHOTOGRAPH),
    *(
        (4, b"ftyp" + brand, "a HEIC photograph, as phones make them", EXPORT)
        for brand in (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1")
    ),
    (4, b"ftypavif", "an AVIF photograph", EXPORT),
    (4, b"ftypcrx ", "a camera's raw file (.cr3)", EXPORT),
    (4, b"ftyp", "a film", EXPORT),
    (8, b"AVI ", "a film", EXPORT),
    (0, b"\x1aE\xdf\xa3", "a film", EXPORT),
    (0, b"8BPS", "a Photoshop file", EXPORT),
    (0, b"\0\0\0\x0cJXL ", "a JPEG XL photograph", EXPORT),
    (0, b"CMDb", "a Heidelberg volume (.e2e)", EXPORT),
    (0, b"HSF-OCT", "a Heidelberg volume (.vol)", EXPORT),
    (0, b"FOCT", "a Topcon volume (.fda)", EXPORT),
    (0, b"\0\5\x16\7", "a companion file that macOS leaves", "name the file without '._'"),
    (0, b"L\0\0\0\1\x14\2\0", "a Windows shortcut", "name the file that it points to"),
    (0, b"bplist00", "the placeholder of a file in a cloud", "open it once, so that it is fetched"),
    (
        0,
        b"version https://git-lfs",
        "the pointer of a file in Git LFS",
        "fetch it by 'git lfs pull'",
    ),
    (0, b"BZh91AY", "a packed file (bzip2)", UNPACK),
    (0, b"\xfd7zXZ", "a packed file (xz)", UNPACK),
    (0, b"(\xb5/\xfd", "a packed file (zstd)", UNPACK),
    (0, b"7z\xbc\xaf", "a packed file (7-zip)", UNPACK),
    (0, b"Rar!", "a packed file (RAR)", UNPACK),
]
#: What the text begins with (spaces and case do not count), what it is, the way out.
TEXTS = [
    (r"<\?xml.*urn:schemas-microsoft-com:office:spreadsheet", "an Excel 2003 file (XML)", CSV),
    (r"<\?xml.*opendocument", "a flat OpenDocument file (.fods)", CSV),
    (r"<\?xml.*graphpad", "a GraphPad Prism file", CSV),
    (r"(<\?xml.*)?<(!doctype html|html|head|body|table|div|script|meta)\b", "a web page (HTML)",
     f"a page that asks to log in must be fetched again; of a table open it and {CSV}"),
    (r"(<\?xml|<[a-z:]+[ >])", "an XML file", CSV),
    (r"mime-version:", "a web archive (.mht)", CSV),
    (r'\{\s*"(url|doc_id)".*docs?\.google', "a link to a Google sheet", "download it as CSV"),
    (r'(\{\s*"|\[\s*[\[{"])', "a JSON file", STATISTICS),
    (r"id;p\w*[;\w]*\s+[bcfop];", "a SYLK file (.slk)", CSV),
    (r"(--[^\n]*\n|/\*.*?\*/|\s)*(create table|insert into|drop table)\b", "an SQL dump",
     STATISTICS),
    (r"(%[^\n]*\n|\s)*@relation\b", "a Weka file (.arff)", STATISTICS),
    (r".{0,400}spss port file", "an SPSS file (.por)", STATISTICS),
]  # fmt: skip
#: How a file's name in an archive begins (the first that is there), what it then is, the way out.
ARCHIVES = [
    (r"xl/workbook\.bin", "a binary Excel workbook (.xlsb)", CSV),
    ("xl/", WORKBOOK, "name it .xlsx"),
    ("word/", "a Word file", f"copy the table into a spreadsheet program and {CSV}"),
    ("ppt/", "a PowerPoint file", f"copy the table into a spreadsheet program and {CSV}"),
    ("Index/", "a Numbers file of Apple", "export it there as CSV or .xlsx"),
    (r"Index\.zip", "a Numbers file of Apple", "export it there as CSV or .xlsx"),
    (r"content\.xml", "an OpenDocument file (.ods)", CSV),
    (r"data\.bin", "a jamovi file (.omv)", CSV),
    (r".*\.npy$", "a NumPy archive (.npz)", STATISTICS),
    ("", "a zip archive", UNPACK),
]
_OLE = [
    ("EncryptedPackage", "an Excel file locked by a password", "save it without the password"),
    ("WordDocument", "a Word file", f"copy the table into a spreadsheet program and {CSV}"),
    ("Workbook", "an old Excel file (.xls)", CSV),
    ("Book", "an old Excel file (.xls)", CSV),
]


def kind_of(content: bytes) -> tuple[str, str] | None:
    """Return what a file is and the way out of it; ``None`` where it may be a table of text."""
    if content.startswith(b"\x1f\x8b"):
        with suppress(zlib.error):
            inside = kind_of(zlib.decompressobj(31).decompress(content, 4096))
            if inside and " R file" in inside[0]:
                return inside
        return "a packed file (gzip)", UNPACK
    if content.startswith(b"PK\x03\x04"):
        return _archive(content)
    if content.startswith(b"\xd0\xcf\x11\xe0"):
        found = ((what, way) for name, what, way in _OLE if name.encode("utf-16-le") in content)
        return next(found, ("an old Office file", CSV))
    if not content.strip(b"\0"):
        return "empty" if not content else "nothing but zero bytes", "save or fetch it again"
    known = (each[2:] for each in MAGIC if content.startswith(each[1], each[0]))
    wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    text = content[:8192].decode("utf-16" if wide else "utf-8", "ignore").lstrip("\ufeff \t\r\n")
    fits = (each[1:] for each in TEXTS if re.match(each[0], text, re.DOTALL | re.IGNORECASE))
    return next(chain(known, fits), None)


def no_photograph(content: bytes, error: object) -> str:
    """Say why a file that cannot be read is no photograph, and the way out."""
    what, way = kind_of(content) or ("", "")
    if not what or way == PHOTOGRAPH:
        return f"cannot be read ({error}); truncated or no image: fetch it again"
    return f"cannot be read: it is {what}: {way}"


def _archive(content: bytes) -> tuple[str, str]:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = archive.namelist() or [""]
    except (zipfile.BadZipFile, OSError):
        return "a damaged Excel workbook or zip file", "save or fetch it again"
    fits = (each for each in ARCHIVES if any(re.match(each[0], name) for name in names))
    return next(fits)[1:]
