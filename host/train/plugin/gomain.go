package plugin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cage-qat/cage/internal/gotool"
	"github.com/cage-qat/cage/internal/vfs"
)

// keepBuilds is how long an executable that nobody uses stays in the cache.
const keepBuilds = 30 * 24 * time.Hour

// holdsMain tells whether a directory holds a Go main package.
func holdsMain(dir string) bool {
	names, _ := fs.Glob(os.DirFS(dir), "*.go") // the pattern is well-formed
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, parser.PackageClauseOnly)
		if err == nil && parsed.Name.Name == "main" {
			return true
		}
	}
	return false
}

// build compiles the Go main package in dir, unless the cache has an executable
// made from the very same sources by the same toolchain. Messages call it by its name.
func (f *Finder) build(ctx context.Context, name, dir string) (Executable, error) {
	if f.CacheDir == "" {
		return Executable{}, errors.New("there is no cache directory to build into: set HOME or XDG_CACHE_HOME")
	}
	tool, err := gotool.Find(ctx, dir, f.Notify)
	if err != nil {
		return Executable{}, err
	}
	key, err := sourceKey(ctx, tool, dir)
	if err != nil {
		return Executable{}, err
	}
	exe := Executable{Name: name, Path: filepath.Join(f.CacheDir, key, filepath.Base(dir))}
	if _, err := os.Stat(exe.Path); err != nil {
		if f.Notify != nil {
			f.Notify("building plugin " + name + " …")
		}
		if err := f.compile(ctx, tool, dir, exe.Path); err != nil {
			return Executable{}, err
		}
	}
	now := time.Now()
	_ = os.Chtimes(filepath.Dir(exe.Path), now, now) // it is in use
	return exe, nil
}

// compile builds beside the cache and moves the result in, so that an executable
// in the cache is always whole, also when two processes build it at once.
func (f *Finder) compile(ctx context.Context, tool *gotool.Tool, dir, target string) error {
	if err := os.MkdirAll(f.CacheDir, 0o755); err != nil {
		return err
	}
	f.prune()
	scratch, err := os.MkdirTemp(f.CacheDir, "building-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	built := filepath.Join(scratch, filepath.Base(target))
	if _, err := tool.Output(ctx, dir, "build", "-trimpath", "-buildvcs=false", "-o", built, "."); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	file, err := os.Open(built)
	if err == nil {
		err = errors.Join(file.Sync(), file.Close())
	}
	if err != nil {
		return err
	}
	if err := os.Rename(built, target); err != nil {
		return err
	}
	return vfs.At(filepath.Dir(target)).SyncDir()
}

// ofCache matches the names of what is in the cache: hashes, and directories in which something is built.
var ofCache = regexp.MustCompile(`^([0-9a-f]{32}|building-[0-9]+)$`)

// prune removes builds that have not been used for a long time, as far as it can.
func (f *Finder) prune() {
	entries, _ := os.ReadDir(f.CacheDir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && e.IsDir() && ofCache.MatchString(e.Name()) && time.Since(info.ModTime()) > keepBuilds {
			_ = os.RemoveAll(filepath.Join(f.CacheDir, e.Name()))
		}
	}
}

// goPackage is the part of go list's answer that determines a build.
type goPackage struct {
	ImportPath string
	Dir        string
	Standard   bool
	// DefaultGODEBUG are the settings of the main package that follow from the version of Go that its go.mod asks for.
	DefaultGODEBUG string
	Module         *struct {
		Path, Version, Dir string
		GoVersion          string // the version of the language that its files are in
		Replace            *struct{ Version string }
		Main               bool
	}
	GoFiles, CgoFiles, CFiles, CXXFiles, HFiles, SFiles, SysoFiles, EmbedFiles []string
}

// settings of the toolchain that change what is built.
var settings = []string{"GOVERSION", "GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOEXPERIMENT", "GOFLAGS", "CGO_ENABLED", "CGO_CFLAGS", "CGO_LDFLAGS", "CC", "CXX"}

// sourceKey hashes everything that goes into the executable: the toolchain and its
// settings, the files of packages that can change under the same version, and the
// versions of all other modules.
func sourceKey(ctx context.Context, tool *gotool.Tool, dir string) (string, error) {
	env, err := tool.Output(ctx, dir, append([]string{"env"}, settings...)...)
	if err != nil {
		return "", err
	}
	list, err := tool.Output(ctx, dir, "list", "-deps", "-json=ImportPath,Dir,Standard,DefaultGODEBUG,Module,GoFiles,CgoFiles,CFiles,CXXFiles,HFiles,SFiles,SysoFiles,EmbedFiles", ".")
	if err != nil {
		return "", err
	}
	h := sha256.New()
	h.Write(env)
	decoder := json.NewDecoder(bytes.NewReader(list))
	for {
		var p goPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(h.Sum(nil))[:32], nil
		}
		if err != nil {
			return "", fmt.Errorf("go list: %w", err)
		}
		if err := p.addTo(h); err != nil {
			return "", err
		}
	}
}

func (p *goPackage) addTo(h hash.Hash) error {
	fmt.Fprintf(h, "package %s\n", p.ImportPath)
	if p.Standard {
		return nil // fixed by the version of Go
	}
	if m := p.Module; m != nil && !m.Main && m.Version != "" && (m.Replace == nil || m.Replace.Version != "") {
		fmt.Fprintf(h, "module %s %s %s\n", m.Path, m.Version, m.Dir)
		return nil // its files are fixed by its version
	}
	if p.Module != nil {
		fmt.Fprintf(h, "language %s\n", p.Module.GoVersion)
	}
	fmt.Fprintf(h, "settings %s\n", p.DefaultGODEBUG)
	files := slices.Concat(p.GoFiles, p.CgoFiles, p.CFiles, p.CXXFiles, p.HFiles, p.SFiles, p.SysoFiles, p.EmbedFiles)
	for _, name := range files {
		content, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "file %s %x\n", name, sha256.Sum256(content))
	}
	return nil
}
