// Command licenses writes THIRD_PARTY_LICENSES at the root of the repository: the list of all
// third-party code linked into the released programs, with its licences. It fails if it does not
// recognize or accept a licence. scripts/generate.sh runs it.
//
// github.com/google/go-licenses v1.6.0 is not used because it considers only one platform, omits Go
// itself, patent grants and copied code, does not recognize two of the licences, takes minutes, and
// needs the network.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// acceptedLicences maps the licences of third-party code that may be linked to their obligations
// for redistribution.
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

// builds lists the environments of the builds: those released, and that for CUDA.
var builds = []string{
	"GOOS=linux GOARCH=amd64 CGO_ENABLED=0 GOEXPERIMENT=simd",
	"GOOS=linux GOARCH=arm64 CGO_ENABLED=0 GOEXPERIMENT=simd",
	"GOOS=darwin GOARCH=amd64 CGO_ENABLED=0 GOEXPERIMENT=simd",
	"GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 GOEXPERIMENT=simd",
	"GOOS=linux GOARCH=amd64 CGO_ENABLED=1 GOEXPERIMENT=simd GOFLAGS=-tags=cuda",
}

// copiedComponents are third-party components copied into this repository with their licences.
var copiedComponents = []component{
	{name: "github.com/leeoniya/uPlot", version: "v1.6.32", dir: "host/study/report/page/uplot",
		with: []string{"."}},
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

// linkedComponents returns Go, followed by the copied components and the modules of all programs,
// sorted by name.
func linkedComponents() ([]component, error) {
	found := map[string]*component{}
	for _, c := range copiedComponents {
		found[c.name] = &c
	}
	for _, build := range builds {
		cmd := exec.Command("go", "list", "-deps", "-f",
			"{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}",
			"./cmd/cage", "./plugins/...")
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

// component is a module, or Go itself.
type component struct {
	name, version string
	dir           string   // its root
	with          []string // directories below dir with linked code, "." for the root
}

// uses adds the directory of a linked package and its parents.
func (c *component) uses(dir string) {
	below, err := filepath.Rel(c.dir, dir)
	if err != nil {
		log.Fatal(err)
	}
	for ; !slices.Contains(c.with, below); below = filepath.Dir(below) {
		c.with = append(c.with, below)
	}
}

// legal matches the names of files that must be redistributed.
var legal = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-._].*)?$`)

// chosen maps modules that offer several licences to the chosen one and its file.
var chosen = map[string]struct{ file, license string }{
	"github.com/golang/freetype": {"licenses/ftl.txt", "FTL"},
}

// referring maps modules to documents that were read, and only refer to the licences that are in
// others.
var referring = map[string]string{
	"github.com/ajstarks/svgo":   "LICENSE-link.txt",
	"github.com/golang/freetype": "LICENSE",
}

// document is a file that contains licences or notices.
type document struct {
	name, text string
	licenses   []string // SPDX names of its licences
	known      float64  // percentage of its words that are the text of licences
}

// enough is the smallest percentage of known words, by the advice of package licensecheck. A
// document with less may have further conditions.
const enough = 75

// documents reads the component's files.
func (c component) documents() (docs []document, err error) {
	slices.Sort(c.with)
	for _, below := range c.with {
		entries, err := os.ReadDir(filepath.Join(c.dir, below))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() || !legal.MatchString(e.Name()) || filepath.Ext(e.Name()) == ".go" {
				continue
			}
			d, err := c.document(filepath.Join(below, e.Name()))
			if err != nil {
				return nil, err
			}
			docs = append(docs, d)
		}
	}
	if choice, ok := chosen[c.name]; ok {
		d, err := c.document(choice.file)
		d.licenses = []string{choice.license}
		return append(docs, d), err
	}
	return docs, nil
}

// document reads a file and recognizes the licences in it.
func (c component) document(name string) (document, error) {
	text, err := os.ReadFile(filepath.Join(c.dir, name))
	d := document{name: filepath.ToSlash(name), text: strings.ReplaceAll(string(text), "\r\n", "\n")}
	coverage := licensecheck.Scan(text)
	d.known = coverage.Percent
	for _, match := range coverage.Match {
		if !match.IsURL && !slices.Contains(d.licenses, match.ID) {
			d.licenses = append(d.licenses, match.ID)
		}
	}
	return d, err
}

// licenses returns the licences in the component's documents. It is an error if one is not
// accepted.
func (c component) licenses(docs []document) (names []string, err error) {
	found := map[string]bool{}
	for _, d := range docs {
		notice := strings.HasPrefix(strings.ToLower(path.Base(d.name)), "notice")
		if d.known < enough && !notice && referring[c.name] != d.name {
			return nil, fmt.Errorf("%s %s: %.0f %% of %s are the text of known licences, want at least "+
				"%d %%: read the rest", c.name, c.version, d.known, d.name, enough)
		}
		for _, name := range d.licenses {
			if acceptedLicences[name] == "" {
				return nil, fmt.Errorf("%s %s: %s has the licence %s, want one of %s",
					c.name, c.version, d.name, name,
					strings.Join(slices.Sorted(maps.Keys(acceptedLicences)), ", "))
			}
			found[name] = true
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s %s: no licence was recognized in %s", c.name, c.version, c.dir)
	}
	return slices.Sorted(maps.Keys(found)), nil
}

const head = `Code of others in cage and its plugins

The released programs are linked with what is listed here, each under its own licence,
whose text follows the list. This file is written by scripts/generate.sh.

`

const rule = "================================================================================"

// write writes the list of components, followed by their documents.
func write(w io.Writer, all []component) error {
	texts, used := new(strings.Builder), map[string]bool{}
	fmt.Fprint(w, head)
	for _, c := range all {
		docs, err := c.documents()
		if err != nil {
			return err
		}
		names, err := c.licenses(docs)
		if err != nil {
			return err
		}
		for _, name := range names {
			used[name] = true
		}
		fmt.Fprintf(w, "%s %s: %s\n", c.name, c.version, strings.Join(names, ", "))
		for _, d := range docs {
			fmt.Fprintf(texts, "\n%s\n%s %s, %s\n%[1]s\n\n%[5]s\n", rule, c.name, c.version, d.name,
				strings.TrimSpace(d.text))
		}
	}
	fmt.Fprint(w, "\nWhat the licences ask of someone who hands the programs on:\n\n")
	for _, name := range slices.Sorted(maps.Keys(used)) {
		fmt.Fprintf(w, "%s: %s\n", name, acceptedLicences[name])
	}
	_, err := io.WriteString(w, texts.String())
	return err
}
