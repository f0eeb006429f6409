package houserules

import (
	"maps"
	"slices"
	"testing"

	"golang.org/x/tools/go/packages"
)

// outside are the modules that a plugin outside of this repository is built from, and those that its tests need as well.
var outside = map[string][]string{
	"sdk": {
		"github.com/fatih/color", "github.com/golang/protobuf", "github.com/hashicorp/go-hclog", "github.com/hashicorp/go-plugin",
		"github.com/hashicorp/yamux", "github.com/mattn/go-colorable", "github.com/mattn/go-isatty", "github.com/oklog/run",
		"golang.org/x/net", "golang.org/x/sys", "golang.org/x/text", "google.golang.org/genproto/googleapis/rpc", "google.golang.org/grpc",
		"google.golang.org/protobuf",
	},
	"sdk/sdktest": {"gonum.org/v1/gonum"},
}

// TestOutsidePlugins: what the author of a plugin downloads is go-plugin with what it needs, and gonum for the kit.
func TestOutsidePlugins(t *testing.T) {
	linked := map[string]map[string]bool{"sdk": {}, "sdk/program": {}, "sdk/sdktest": {}}
	for _, p := range load(t) {
		for name, modules := range linked {
			if p.PkgPath == module+"/"+name {
				packages.Visit([]*packages.Package{p}, nil, func(q *packages.Package) {
					if q.Module != nil && !q.Module.Main {
						modules[q.Module.Path] = true
					}
				})
			}
		}
	}
	for name, want := range map[string][]string{
		"sdk": outside["sdk"], "sdk/sdktest": slices.Sorted(slices.Values(slices.Concat(outside["sdk"], outside["sdk/sdktest"]))),
		"sdk/program": nil,
	} {
		if got := slices.Sorted(maps.Keys(linked[name])); !slices.Equal(got, want) {
			t.Errorf("%s is built from the modules %q, want %q: authors of plugins download them, and docs/writing-a-plugin.md counts them", name, got, want)
		}
	}
}
