"""The steps of Windows nodes, where they differ from those of Linux nodes (winlab/steps/linux/)."""
