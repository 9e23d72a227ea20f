"""Where the bytes come from: files, folders, and archives inside of them, opened one after the other."""
