package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/cage-qat/cage/internal/atomicfile"
)

// modulePath is that of the module in which package sdk is.
const modulePath = "github.com/cage-qat/cage"

// pluginModule is the module that a new plugin gets for its own.
type pluginModule struct {
	version string // required of cage's module
	source  string // absolute directory that replaces it; empty: none
}

// ownModule decides where the plugin finds package sdk. It is nil where the module
// around the new directory provides it.
func (s scaffold) ownModule(ctx context.Context) (*pluginModule, error) {
	if s.source != "" {
		return replaced(ctx, s.source)
	}
	around, err := goOutput(ctx, s.parent, "env", "GOMOD")
	if err != nil {
		return nil, err
	}
	if around == "" || around == os.DevNull {
		return published()
	}
	if _, err := goOutput(ctx, s.parent, "list", "-m", modulePath); err != nil {
		return nil, fmt.Errorf("the module of %s does not require %s: run go get %[2]s there, choose a directory outside of it, or give --sdk\n%w", around, modulePath, err)
	}
	return nil, nil
}

// replaced is a module that takes the sdk from a directory.
func replaced(ctx context.Context, source string) (*pluginModule, error) {
	source, err := filepath.Abs(source)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(source, "go.mod")); err != nil {
		return nil, fmt.Errorf("--sdk %s: not the source of cage: %w", source, err)
	}
	path, err := goOutput(ctx, source, "list", "-m")
	if err != nil {
		return nil, fmt.Errorf("--sdk %s: %w", source, err)
	}
	if path != modulePath {
		return nil, fmt.Errorf("--sdk %s: holds the module %s, want %s", source, path, modulePath)
	}
	return &pluginModule{version: "v0.0.0", source: source}, nil
}

// published is a module that requires the version of this executable.
func published() (*pluginModule, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Path != modulePath || !strings.HasPrefix(info.Main.Version, "v") || strings.Contains(info.Main.Version, "+") {
		return nil, errors.New("this cage was built from source of no published version: " +
			"give --sdk DIR, the directory of that source, or write the plugin inside a module that requires " + modulePath)
	}
	return &pluginModule{version: info.Main.Version}, nil
}

// write makes go.mod and go.sum in dir. The notice tells why they are not complete
// yet, for example because modules must be fetched and there is no network.
func (m pluginModule) write(ctx context.Context, dir, name string) (notice, err error) {
	edits := []string{"mod", "edit", "-require=" + modulePath + "@" + m.version}
	if m.source != "" {
		edits = append(edits, "-replace="+modulePath+"="+m.source)
		sums, err := os.ReadFile(filepath.Join(m.source, "go.sum"))
		if err != nil {
			return nil, err
		}
		if err := atomicfile.WriteBytes(filepath.Join(dir, "go.sum"), sums); err != nil {
			return nil, err
		}
	}
	if _, err := goOutput(ctx, dir, "mod", "init", "example.com/"+name); err != nil {
		return nil, err
	}
	if _, err := goOutput(ctx, dir, edits...); err != nil {
		return nil, err
	}
	// Unlike go mod tidy it asks for nothing that only tests of libraries need, so
	// that it works without a network where cage itself was built.
	_, notice = goOutput(ctx, dir, "list", "-mod=mod", "-deps", "-test", ".")
	return notice, ctx.Err()
}
