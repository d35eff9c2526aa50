"""Why a head attends where it does, what it would do with other weights, and how to change it."""
