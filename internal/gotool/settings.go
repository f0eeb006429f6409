package gotool

import (
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
)

// release is the part of a toolchain's version that GOTOOLCHAIN takes. What may
// follow it names the experiments, as in go1.27.2-X:simd.
var release = regexp.MustCompile(`^go1\.[0-9]+(\.[0-9]+|rc[0-9]+)?`)

// buildSettings are the settings with which an executable was built. Empty ones are unknown.
type buildSettings struct{ toolchain, experiment string }

// ofThisExecutable reads them from the executable that is running.
func ofThisExecutable() buildSettings {
	b := buildSettings{toolchain: release.FindString(runtime.Version())}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "GOEXPERIMENT" {
				b.experiment = s.Value
			}
		}
	}
	return b
}

// candidates are additions to the environment, the best first. The toolchain of the
// executable is fetched where it is missing; without a network the person's own
// toolchain may do, too, and it need not know the experiments.
func (b buildSettings) candidates() [][]string {
	var common []string
	if os.Getenv("CGO_ENABLED") == "" {
		common = []string{"CGO_ENABLED=0"} // as in the Makefile: no C compiler is needed
	}
	var list [][]string
	add := func(settings ...string) { list = append(list, append(settings, common...)) }
	if b.toolchain != "" && b.experiment != "" {
		add("GOTOOLCHAIN="+b.toolchain+"+auto", "GOEXPERIMENT="+b.experiment)
	}
	if b.toolchain != "" && b.experiment == "" {
		add("GOTOOLCHAIN=" + b.toolchain + "+auto")
	}
	if b.experiment != "" {
		add("GOEXPERIMENT=" + b.experiment)
	}
	add()
	return list
}
