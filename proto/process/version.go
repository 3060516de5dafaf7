package process

import "runtime/debug"

// Version is the release, set by the linker; see BuildVersion.
var Version string //nolint:gochecknoglobals // the linker needs a variable

// BuildVersion returns Version, or the version recorded by the Go toolchain.
func BuildVersion() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" && info.Main.Version != "(devel)" {
			return info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return "devel-" + s.Value[:12]
			}
		}
	}
	return "devel"
}
