"""What a lab is made of: images, media and artifacts, fetched or built, checked, and kept in caches."""
