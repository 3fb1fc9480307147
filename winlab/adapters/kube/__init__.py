"""The cluster's API server, as the host sees it: kubectl, kubeconfigs, tokens, clusters made elsewhere."""
