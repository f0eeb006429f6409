package plugin

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
)

func init() { behaviours["limited-host"] = limitedHost }

// limitedHost is a host with a hard limit of memory of its own, 1 GiB, as a cluster may set it. It prints the plugin's.
func limitedHost() {
	limit := unix.Rlimit{Cur: 1 << 30, Max: 1 << 30}
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &limit); err != nil {
		panic(err)
	}
	for _, user := range []int{0, 65534} { // only root could raise it
		if user > 0 {
			if err := unix.Setuid(user); err != nil {
				fmt.Println("cannot be another user:", err)
				return
			}
		}
		c, err := Start(context.Background(), direct(os.Getenv("TEST_PLUGIN")), sdk.KindQuantizer, Options{StartTimeout: patience, Memory: 4 << 30})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", c.PID()))
		if err != nil {
			panic(err)
		}
		for line := range strings.Lines(string(limits)) {
			if strings.HasPrefix(line, "Max data size") {
				fmt.Println(strings.Fields(line)[3:5])
			}
		}
		c.Close()
	}
}

// A host whose own memory is limited starts plugins within that limit.
func TestHardLimitOfTheHost(t *testing.T) {
	testlevel.Long(t, "starts hosts")
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	plugin := filepath.Join(t.TempDir(), "quantizer")
	if err := os.Link(self, plugin); err != nil {
		t.Skip(err) // a symbolic link would lead where other users may not go
	}
	all := cmp.Or(os.Getenv("GOTMPDIR"), os.TempDir())
	if info, err := os.Stat(all); err != nil || info.Mode().Perm()&0o003 != 0o003 {
		t.Skipf("other users cannot write to %s (%v)", all, err)
	}
	for dir := filepath.Dir(plugin); dir != filepath.Clean(all); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	host := exec.Command(link(t, "limited-host").Path)
	host.Env = append(os.Environ(), "TEST_PLUGIN="+plugin)
	out, err := host.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for _, line := range lines {
		if line != "[1073741824 1073741824]" && !strings.HasPrefix(line, "cannot be another user") {
			t.Errorf("the plugin's limits are %s", line)
		}
	}
	t.Log(lines)
}
