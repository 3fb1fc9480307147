"""Known causes of what goes wrong with Windows nodes: as data, and found in logs. Pure: texts in, explanations out."""
