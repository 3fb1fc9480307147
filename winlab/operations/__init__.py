"""One file a verb: what people do with a lab, each as a whole."""
