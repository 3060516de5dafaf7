package controlplane

// VersionHash is the name of the folder into which the binaries are built.
func VersionHash() string { return versionHash() }

// KubernetesVersion is the pinned version.
func KubernetesVersion() string { return kubernetesVersion() }
