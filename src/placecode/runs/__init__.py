"""Write, read, summarize and merge run folders, and record the hash of the source code that produced them."""
