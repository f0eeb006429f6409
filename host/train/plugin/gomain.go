package plugin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"go/parser"
	"go/token"
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

// keepBuilds is the time after which an unused executable is removed from the cache.
const keepBuilds = 30 * 24 * time.Hour

func holdsMain(dir string) bool {
	names, _ := fs.Glob(os.DirFS(dir), "*.go") // the pattern is valid
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		path := filepath.Join(dir, name)
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly)
		if err == nil && parsed.Name.Name == "main" {
			return true
		}
	}
	return false
}

// build compiles the Go main package in dir, unless the cache has an executable built from the same
// sources with the same toolchain. name is used in messages.
func (f *Finder) build(ctx context.Context, name, dir string) (Executable, error) {
	if f.CacheDir == "" {
		return Executable{}, errors.New(
			"there is no cache directory to build into: set HOME or XDG_CACHE_HOME")
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
	_ = os.Chtimes(filepath.Dir(exe.Path), now, now) // marks it as used; see keepBuilds
	return exe, nil
}

// compile builds in a temporary directory and moves the result into the cache.
func (f *Finder) compile(ctx context.Context, tool *gotool.Tool, dir, target string) error {
	if err := os.MkdirAll(f.CacheDir, 0o755); err != nil {
		return err
	}
	entries, _ := os.ReadDir(f.CacheDir)
	for _, e := range entries {
		info, err := e.Info()
		old := err == nil && time.Since(info.ModTime()) > keepBuilds
		if old && e.IsDir() && cacheEntry.MatchString(e.Name()) {
			_ = os.RemoveAll(filepath.Join(f.CacheDir, e.Name()))
		}
	}
	scratch, err := os.MkdirTemp(f.CacheDir, "building-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	built := filepath.Join(scratch, filepath.Base(target))
	_, err = tool.Output(ctx, dir, "build", "-trimpath", "-buildvcs=false", "-o", built, ".")
	if err != nil {
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

// cacheEntry matches the names of directories in the cache: source keys, and scratch directories.
var cacheEntry = regexp.MustCompile(`^([0-9a-f]{32}|building-[0-9]+)$`)

// sourceKey returns the cache key of a build: a hash of linker settings and of the build ID of the
// compiled main package, which depends on the toolchain and the content of all imports.
func sourceKey(ctx context.Context, tool *gotool.Tool, dir string) (string, error) {
	id, err := tool.Output(ctx, dir, "list", "-export", "-trimpath", "-buildvcs=false",
		"-f", "{{.BuildID}} {{.DefaultGODEBUG}}", ".")
	if err != nil {
		return "", err
	}
	env, err := tool.Output(ctx, dir, "env",
		"GOFLAGS", "GOEXPERIMENT", "CGO_ENABLED", "CGO_LDFLAGS", "CC", "CXX")
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(slices.Concat(id, env))
	return hex.EncodeToString(sum[:])[:32], nil
}
