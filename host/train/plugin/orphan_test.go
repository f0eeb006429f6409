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

// However the host ends, its plugins end with it.
func TestNoOrphans(t *testing.T) {
	testlevel.Long(t, "starts and ends hosts")
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

// startHost starts a host, and returns it with the process of its plugin.
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

// patience is how long the tests wait for what must happen. It is no bound on how fast that
// is: where a machine has much other work, processes get their turn late, and each end takes
// several turns (of the host and the plugin). An orphan stays for ever.
const patience = time.Minute

// awaitDeath fails when the process does not end.
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
