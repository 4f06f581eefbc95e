"""While the job runs: how far the ranks are, what they are asked, what is passed between them."""
