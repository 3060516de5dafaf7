package assets

// VersionHash is the name of the folder into which the binaries are built.
func VersionHash() string { return versionHash() }

// KubernetesVersion is the version that is pinned.
func KubernetesVersion() string { return kubernetesVersion() }
