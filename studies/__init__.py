"""What the chapters compute beside the library, a folder a chapter; the library never imports it."""
