// Command licenses writes the list of all third-party code that is linked into the
// released programs, with its licences: THIRD_PARTY_LICENSES at the root of the
// repository. It fails if it does not recognize a licence, or if a licence is not among
// those agreed on. scripts/generate.sh runs it.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// acceptedLicences are the licences under which we link code of others, and what each asks of
// someone who hands the programs on.
var acceptedLicences = map[string]string{
	"Apache-2.0":        "hand on the licence and its notices",
	"CC-BY-4.0":         "name the author and the licence",
	"BSD-2-Clause":      "hand on the licence",
	"BSD-3-Clause":      "hand on the licence",
	"FTL":               "name the FreeType project",
	"GooglePatentsFile": "nothing: it is a grant of patents beside the licence",
	"MIT":               "hand on the licence",
	"MPL-2.0":           "say where the source is: it is the module at that version, unchanged",
	"OFL-1.1":           "hand on the licence with the fonts",
}

// builds are those for which there are archives, and the one for CUDA.
var builds = []string{
	"GOOS=linux GOARCH=amd64 CGO_ENABLED=0 GOEXPERIMENT=simd",
	"GOOS=linux GOARCH=arm64 CGO_ENABLED=0 GOEXPERIMENT=simd",
	"GOOS=darwin GOARCH=amd64 CGO_ENABLED=0 GOEXPERIMENT=simd",
	"GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 GOEXPERIMENT=simd",
	"GOOS=linux GOARCH=amd64 CGO_ENABLED=1 GOEXPERIMENT=simd GOFLAGS=-tags=cuda",
}

// copiedComponents are the parts of others that stand in this repository, in directories with their
// licences.
var copiedComponents = []component{
	{name: "github.com/leeoniya/uPlot", version: "v1.6.32", dir: "host/study/report/page/uplot", with: []string{"."}},
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("licenses: ")
	out := flag.String("out", "THIRD_PARTY_LICENSES", "file to write")
	flag.Parse()
	all, err := linkedComponents()
	if err != nil {
		log.Fatal(err)
	}
	var text bytes.Buffer
	if err := write(&text, all); err != nil {
		log.Fatal(err)
	}
	if err := atomicfile.WriteBytes(vfs.At(*out), text.Bytes()); err != nil {
		log.Fatal(err)
	}
}

// linkedComponents returns what is copied and the modules that any of the programs is built from,
// in the order of their names, after Go itself.
func linkedComponents() ([]component, error) {
	found := map[string]*component{}
	for _, c := range copiedComponents {
		found[c.name] = &c
	}
	for _, build := range builds {
		cmd := exec.Command("go", "list", "-deps", "-f",
			"{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}", "./cmd/cage", "./plugins/...")
		cmd.Env = append(os.Environ(), strings.Fields(build)...)
		cmd.Stderr = os.Stderr
		list, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("%s go list: %w", build, err)
		}
		for line := range strings.Lines(string(list)) {
			fields := strings.Split(strings.TrimSpace(line), "\t")
			if len(fields) != 4 {
				continue // Go itself, or this module
			}
			if found[fields[0]] == nil {
				found[fields[0]] = &component{name: fields[0], version: fields[1], dir: fields[2]}
			}
			found[fields[0]].uses(fields[3])
		}
	}
	root, err := exec.Command("go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	dir, version, _ := strings.Cut(strings.TrimSpace(string(root)), "\n")
	goItself := component{name: "Go's standard library and runtime", version: version, dir: dir}
	goItself.uses(dir)
	all := []component{goItself}
	for _, path := range slices.Sorted(maps.Keys(found)) {
		all = append(all, *found[path])
	}
	return all, nil
}
