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

	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// TestNoOrphans checks that plugins end with their host, however it ends.
func TestNoOrphans(t *testing.T) {
	testlevel.Long(t, "starts and ends hosts")
	cases := []struct {
		name, plugin string
		signal       syscall.Signal
		system       string // the system that the case needs, if any
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
			host, plugin := startHost(t, c.plugin)
			if !alive(plugin) {
				t.Fatal("the plugin does not run")
			}
			if err := host.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			_ = host.Wait()
			awaitDeath(t, plugin)
		})
	}
}

// startHost starts a host, and returns it with the process ID of its plugin.
func startHost(t *testing.T, plugin string) (host *exec.Cmd, pid int) {
	t.Helper()
	host = exec.Command(link(t, "host").Path)
	host.Env = append(os.Environ(), "TEST_PLUGIN="+link(t, plugin).Path)
	out, err := host.StdoutPipe()
	if err := errors.Join(err, host.Start()); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		t.Fatalf("the host says: %s", line)
	}
	return host, pid
}

// processState returns the letter of a process's state on Linux: T if it is stopped, Z if it has
// ended but its parent has not waited for it. It returns "" if there is no process, and "?" if the
// state is unknown.
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

// patience is how long the tests wait for events that must happen. It does not bound their speed:
// on a busy machine, processes run late, and each end takes several turns of the host and the
// plugin. An orphan stays for ever.
const patience = time.Minute

// awaitDeath fails the test if the process does not end.
func awaitDeath(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if !alive(pid) {
			return
		}
	}
	state := processState(pid)
	_ = syscall.Kill(pid, syscall.SIGKILL)
	t.Errorf("process %d still runs %v later, in the state %s", pid, patience, state)
}
