"""placecode: learn where tokens live."""
