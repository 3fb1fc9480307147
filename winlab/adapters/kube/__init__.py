"""The cluster's API server, seen from the host: kubectl, kubeconfigs, tokens, external clusters."""
