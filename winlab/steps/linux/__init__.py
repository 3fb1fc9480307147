"""The steps of Linux nodes, where they differ from those of Windows nodes (winlab/steps/windows/)."""
