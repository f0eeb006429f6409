package train_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
)

// The test binary runs itself as the host that is killed.
const (
	hostConfigEnv  = "TRAIN_TEST_CONFIG"
	hostPluginsEnv = "TRAIN_TEST_PLUGINS"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(hostConfigEnv); path != "" {
		if err := beHost(path, os.Getenv(hostPluginsEnv)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testrun.Main(m)
}

// beHost trains, or goes on training, as a configuration file says.
func beHost(path, plugins string) error {
	cfg, err := config.Load(path, nil)
	if err != nil {
		return err
	}
	_, err = train.Run(context.Background(), cfg, train.Options{Resume: true, Finder: &plugin.Finder{Dirs: []string{plugins}}})
	return err
}

// host is a training in a process of its own.
type host struct {
	cmd   *exec.Cmd
	ended chan error
}

// startHost starts one; it must be killed or waited for.
func startHost(t *testing.T, cfg *config.Config, finder *plugin.Finder) host {
	t.Helper()
	text, err := cfg.Encode()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "host.toml")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := host{exec.Command(self), make(chan error, 1)}
	h.cmd.Env = append(os.Environ(), hostConfigEnv+"="+path, hostPluginsEnv+"="+finder.Dirs[0])
	h.cmd.Stderr = os.Stderr
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { h.ended <- h.cmd.Wait() }()
	return h
}

// kill ends the process with SIGKILL and waits for its end; it is false when the
// process had ended by itself.
func (h host) kill(t *testing.T) bool {
	t.Helper()
	_ = h.cmd.Process.Kill()
	<-h.ended
	return !h.cmd.ProcessState.Exited()
}

// await polls until a condition holds, the process has ended, or too much time has
// passed; it is true when the condition holds.
func (h host) await(t *testing.T, what string, holds func() bool) bool {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if holds() {
			return true
		}
		select {
		case err := <-h.ended:
			h.ended <- err
			return holds()
		default:
		}
	}
	h.kill(t)
	t.Fatalf("after a minute: still waiting for %s", what)
	return false
}

// poisoned are the configurations of n equal runs that have done two steps, and in
// whose newest checkpoint the embedding of the rare token is NaN: every later step
// whose batch holds that token is not finite.
func poisoned(t *testing.T, n int, overrides ...string) []*config.Config {
	t.Helper()
	first := testrun.Config(t, overrides...)
	runParts(t, first, 2)
	poison(t, first, "param/embedding", func(dims []int) (from, to int) {
		return testrun.Rare * dims[1], (testrun.Rare + 1) * dims[1]
	})
	list := []*config.Config{first}
	for len(list) < n {
		next := testrun.Elsewhere(t, first)
		if err := os.CopyFS(next.Train.Out, os.DirFS(first.Train.Out)); err != nil {
			t.Fatal(err)
		}
		list = append(list, next)
	}
	return list
}
