"""What the chapters compute beside the library, a folder each; the library never imports it."""
