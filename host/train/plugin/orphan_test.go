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
	"github.com/cage-qat/cage/sdk"
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

// Children that leave the plugin's group and session, and lose their parent, end with
// the plugin: when it is closed, when it dies, and when the host is killed.
func TestNoDescendantsStay(t *testing.T) {
	testlevel.Long(t, "starts and ends hosts")
	if runtime.GOOS != "linux" {
		t.Skip("only on Linux")
	}
	ends := map[string]func(t *testing.T, c *Client){
		"closed": func(_ *testing.T, c *Client) { c.Close() },
		"died": func(t *testing.T, c *Client) {
			if err := syscall.Kill(c.PID(), syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, "forks-away", sdk.KindQuantizer, Options{})
			list := descendants(t, supervisorOf(t, c.PID()))
			end(t, c)
			awaitDeaths(t, list)
		})
	}
	t.Run("host killed", func(t *testing.T) {
		t.Parallel()
		host, plugin := startHost(t, "forks-away")
		list := descendants(t, supervisorOf(t, plugin))
		if err := host.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = host.Wait()
		awaitDeaths(t, list)
	})
}

// A plugin may turn against its supervisor, with which it shares its rights: then it
// ends all the same.
func TestSupervisorUnderAttack(t *testing.T) {
	testlevel.Long(t, "waits for a process that stands still")
	if runtime.GOOS != "linux" {
		t.Skip("only on Linux")
	}
	t.Run("stopped", func(t *testing.T) {
		t.Parallel()
		c := start(t, "quantizer", sdk.KindQuantizer, Options{CallTimeout: tooShort})
		_, err := c.Quantize(t.Context(), site("stop-parent"))
		check(t, err, ErrTimeout)
		c.Close()
		awaitDeath(t, c.PID())
	})
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		c := start(t, "quantizer", sdk.KindQuantizer, Options{})
		_, err := c.Quantize(t.Context(), site("kill-parent"))
		check(t, err, ErrShutdown, "was lost: the process that watches over it has ended")
		awaitDeath(t, c.PID())
	})
}

// supervisorOf is the parent of a plugin's process.
func supervisorOf(t *testing.T, pid int) int {
	t.Helper()
	return parents(t)[pid]
}

// parents are the parents of all processes.
func parents(t *testing.T) map[int]int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	of := map[int]int{}
	for _, file := range files {
		if stat, err := os.ReadFile(file); err == nil {
			of[atoi(t, filepath.Base(filepath.Dir(file)))] = atoi(t, string(bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])[1]))
		}
	}
	return of
}

// descendants are the three processes below a supervisor: the plugin, and two that have
// left its session, one of them with another parent.
func descendants(t *testing.T, supervisor int) (list []int) {
	t.Helper()
	of := parents(t)
	for pid := range of {
		for up := of[pid]; up > 1; up = of[up] {
			if up == supervisor {
				list = append(list, pid)
				break
			}
		}
	}
	if len(list) != 3 {
		t.Fatalf("%d processes below the supervisor, want 3", len(list))
	}
	return list
}

func awaitDeaths(t *testing.T, list []int) {
	t.Helper()
	for _, pid := range list {
		awaitDeath(t, pid)
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

// patience is how long the tests wait for what must happen. It is no bound on how fast that
// is: where a machine has much other work, processes get their turn late, and each end takes
// several turns (of the host, the supervisor and the plugin). An orphan stays for ever.
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

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
