"""Inside the training process: count steps, agree on a window, capture it, leave a record.

It runs inside the user's job. It is small and quick to import, it never makes that job fail, hang, or end
otherwise than it would have, and nothing here may import more than torch and the ground floor.
"""
