package plugin

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// However the host ends, its plugins end with it.
func TestNoOrphans(t *testing.T) {
	cases := []struct {
		name, plugin string
		signal       syscall.Signal
		system       string // where it holds; empty: everywhere
	}{
		{"killed", "quantizer", syscall.SIGKILL, ""},
		{"terminated", "quantizer", syscall.SIGTERM, ""},
		{"killed, without go-plugin", "plain-grpc", syscall.SIGKILL, ""},
		{"killed, and the plugin does not watch", "ignores-its-host", syscall.SIGKILL, "linux"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.system != "" && c.system != runtime.GOOS {
				t.Skipf("only on %s", c.system)
			}
			t.Parallel()
			host := exec.Command(link(t, "host").Path)
			host.Env = append(os.Environ(), "TEST_PLUGIN="+link(t, c.plugin).Path)
			out, err := host.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := host.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			plugin := atoi(t, line)
			if !alive(plugin) {
				t.Fatal("the plugin does not run")
			}
			if err := host.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			_ = host.Wait()
			awaitDeath(t, plugin, 2*time.Second)
		})
	}
}

// processState is the letter that the system gives the state of a process: T for a
// stopped one, Z for one that has ended and waits for its parent, nothing for none.
// Where it cannot be known it is a question mark.
func processState(pid int) string {
	if runtime.GOOS != "linux" {
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return ""
		}
		return "?"
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return ""
	}
	return string(bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])[0])
}

func alive(pid int) bool { return !strings.Contains("ZX", processState(pid)) }

func awaitDeath(t *testing.T, pid int, within time.Duration) {
	t.Helper()
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if !alive(pid) {
			return
		}
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	t.Errorf("process %d still runs %v later", pid, within)
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
