// Command wheel makes the wheels of the packages for Python: of cage-sdk one for every machine, of
// cage-torch one for each system, which also holds the command cage and the shipped plugins. Two
// builds of a commit are identical.
//
//	go run ./tools/wheel [-targets linux_amd64,…] DIRECTORY
//
// The environment is that of the Makefile. A wheel is a zip archive (PEP 427): cage is one of its
// scripts, and the plugins go to bin/plugins of the environment, beside the command, as in the
// archives of a release. They are stripped of symbols: with these, a wheel would exceed the 100 MB
// that PyPI accepts.
package main

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"debug/macho"
	"encoding/base64"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

const (
	sdkDir   = "sdk/python"
	torchDir = "sdk/python/torch"
)

func main() {
	log.SetFlags(0)
	targets := flag.String("targets", "linux_amd64,linux_arm64,darwin_amd64,darwin_arm64",
		"systems and processors")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("wheel: want the directory of the wheels")
	}
	if err := run(flag.Arg(0), strings.Split(*targets, ",")); err != nil {
		log.Fatal("wheel: ", err)
	}
}

func run(out string, targets []string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	sdk, err := read(sdkDir)
	if err != nil {
		return err
	}
	if err := sdk.write(out, []string{"any"}); err != nil {
		return err
	}
	for _, target := range targets {
		torch, err := read(torchDir)
		if err != nil {
			return err
		}
		binaries, err := torch.build(target)
		if err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
		platforms, err := platformsOf(target, binaries["cage"])
		if err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
		data := torch.stem() + ".data/"
		for name, binary := range binaries {
			if name == "cage" {
				torch.files[data+"scripts/"+name] = binary
			} else {
				torch.files[data+"data/bin/plugins/"+name] = binary
			}
		}
		if err := torch.write(out, platforms); err != nil {
			return err
		}
	}
	return nil
}

// platformsOf returns the tags of the platforms on which a binary runs. On Linux it needs no C
// library: the tag is the oldest that installers know, and PyTorch has no wheels for musl. What
// macOS it needs, the binary itself says.
func platformsOf(target string, binary []byte) ([]string, error) {
	goos, goarch, _ := strings.Cut(target, "_")
	processor := map[string]string{"linux_amd64": "x86_64", "linux_arm64": "aarch64",
		"darwin_amd64": "x86_64", "darwin_arm64": "arm64"}[target]
	if processor == "" {
		return nil, fmt.Errorf("no wheels are made for %s on %s", goos, goarch)
	}
	if goos == "linux" {
		return []string{"manylinux_2_17_" + processor, "manylinux2014_" + processor}, nil
	}
	const buildVersion = 0x32 // LC_BUILD_VERSION: command, size, platform, oldest system
	f, err := macho.NewFile(bytes.NewReader(binary))
	if err != nil {
		return nil, err
	}
	for _, l := range f.Loads {
		if raw := l.Raw(); len(raw) >= 16 && f.ByteOrder.Uint32(raw) == buildVersion {
			version := f.ByteOrder.Uint32(raw[12:])
			return []string{fmt.Sprintf("macosx_%d_%d_%s", version>>16, version>>8&255, processor)}, nil
		}
	}
	return nil, fmt.Errorf("the binary does not say which macOS it needs")
}

// distribution is a package for Python.
type distribution struct {
	project project
	files   map[string][]byte // by their paths in the wheel
}

// project is the table of that name in pyproject.toml.
type project struct {
	Name, Version, Description string
	Python                     string              `toml:"requires-python"`
	Dependencies               []string            `toml:"dependencies"`
	Optional                   map[string][]string `toml:"optional-dependencies"`
}

// read reads the package in a directory, without its tests.
func read(dir string) (*distribution, error) {
	var config struct{ Project project }
	if _, err := toml.DecodeFile(filepath.Join(dir, "pyproject.toml"), &config); err != nil {
		return nil, err
	}
	d := &distribution{config.Project, map[string][]byte{}}
	root := os.DirFS(dir)
	err := fs.WalkDir(root, d.module(), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || path == d.module():
			return err
		case entry.IsDir(): // of caches
			return fs.SkipDir
		}
		d.files[path], err = fs.ReadFile(root, path)
		return err
	})
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	p := d.project
	fmt.Fprintf(&text, "Metadata-Version: 2.4\nName: %s\nVersion: %s\nSummary: %s\n"+
		"License-Expression: Apache-2.0\nRequires-Python: %s\n",
		p.Name, p.Version, p.Description, p.Python)
	for _, name := range []string{"LICENSE", "THIRD_PARTY_LICENSES"} {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		d.files[d.info("licenses/"+name)] = content
		fmt.Fprintf(&text, "License-File: %s\n", name)
	}
	for _, need := range p.Dependencies {
		fmt.Fprintf(&text, "Requires-Dist: %s\n", need)
	}
	for _, extra := range slices.Sorted(maps.Keys(p.Optional)) {
		fmt.Fprintf(&text, "Provides-Extra: %s\n", extra)
		for _, need := range p.Optional[extra] {
			fmt.Fprintf(&text, "Requires-Dist: %s; extra == %q\n", need, extra)
		}
	}
	about, err := fs.ReadFile(root, "README.md")
	fmt.Fprintf(&text, "Description-Content-Type: text/markdown\n\n%s", about)
	d.files[d.info("METADATA")] = []byte(text.String())
	return d, err
}

// module returns the name of the package's only module.
func (d *distribution) module() string { return strings.ReplaceAll(d.project.Name, "-", "_") }

// stem begins the names of the wheel and of its own directories.
func (d *distribution) stem() string { return d.module() + "-" + d.project.Version }

// info returns the path of a file about the distribution.
func (d *distribution) info(name string) string { return d.stem() + ".dist-info/" + name }

// build builds cage and the plugins for a target, and returns the binaries by name.
func (d *distribution) build(target string) (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "cage-wheel-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	goos, goarch, _ := strings.Cut(target, "_")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w -X main.version="+d.project.Version, "-o", dir+"/", "./cmd/cage", "./plugins/...")
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0", "GOWORK=off")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	binaries := map[string][]byte{}
	for _, e := range entries {
		if err == nil {
			binaries[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name()))
		}
	}
	return binaries, err
}

// write writes the wheel for the given platforms, one of which may be "any".
func (d *distribution) write(out string, platforms []string) error {
	var tags strings.Builder
	for _, p := range platforms {
		fmt.Fprintf(&tags, "Tag: py3-none-%s\n", p)
	}
	d.files[d.info("WHEEL")] = fmt.Appendf(nil, "Wheel-Version: 1.0\nGenerator: cage\n"+
		"Root-Is-Purelib: %t\n%s", platforms[0] == "any", tags.String())
	var record bytes.Buffer
	names := slices.Sorted(maps.Keys(d.files))
	for _, name := range names {
		sum := sha256.Sum256(d.files[name])
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", name,
			base64.RawURLEncoding.EncodeToString(sum[:]), len(d.files[name]))
	}
	fmt.Fprintf(&record, "%s,,\n", d.info("RECORD"))
	d.files[d.info("RECORD")] = record.Bytes()
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(w, flate.BestCompression)
	})
	for _, name := range append(names, d.info("RECORD")) { // which is the last by convention
		h := &zip.FileHeader{Name: name, Method: zip.Deflate,
			Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)} // the first that zip can hold
		h.SetMode(0o644)
		if strings.Contains(name, ".data/") {
			h.SetMode(0o755)
		}
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = w.Write(d.files[name])
		}
		if err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	name := fmt.Sprintf("%s-py3-none-%s.whl", d.stem(), strings.Join(platforms, "."))
	fmt.Printf("%s: %d MB\n", filepath.Join(out, name), archive.Len()>>20)
	return atomicfile.WriteBytes(vfs.At(filepath.Join(out, name)), archive.Bytes())
}
