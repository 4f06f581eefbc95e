"""Input: the matched calls of a window and its replay. Output: slow links between ranks, with what each costs."""
