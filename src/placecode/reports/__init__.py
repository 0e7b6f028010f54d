"""What people look at: figures, HTML reports, and the sentences that go with them."""
