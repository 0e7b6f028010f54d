"""What members have learned, measured: pure functions, arrays in, arrays out; they know neither models nor runs."""
