package build

import (
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// Available is the additional memory that a process may allocate.
type Available struct {
	Bytes int64  `json:"bytes"`
	Limit string `json:"limit"` // the limiting resource, for a message
}

// availableIn returns the free memory of the machine or, if that is less, the memory that the
// control groups (version 2) of this process still allow. It reads proc and sys below root, and
// returns false if the system reports neither.
func availableIn(root fs.FS) (Available, bool) {
	least := Available{Bytes: math.MaxInt64}
	consider := func(bytes int64, limit string, ok bool) {
		if ok && bytes < least.Bytes {
			least = Available{Bytes: max(0, bytes), Limit: limit}
		}
	}
	free, ok := field(root, "proc/meminfo", "MemAvailable:")
	consider(free<<10, "free memory of the machine", ok)
	// Consider the control group of this process and the groups above it. In a container, the path
	// of its own group is often not visible, but then the root is the container's group.
	text, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(text)) {
		own, unified := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for dir := path.Clean("/" + own); unified; dir = path.Dir(dir) {
			group := path.Join("sys/fs/cgroup", dir)
			if limit, ok := number(root, path.Join(group, "memory.max")); ok {
				if usage, ok := number(root, path.Join(group, "memory.current")); ok {
					cached, _ := field(root, path.Join(group, "memory.stat"), "inactive_file") // reclaimable
					limit -= max(0, usage-cached)
				}
				consider(limit, "limit of the control group "+group, true)
			}
			if dir == "/" {
				break
			}
		}
	}
	return least, least.Limit != ""
}

func number(root fs.FS, name string) (int64, bool) {
	text, _ := fs.ReadFile(root, name) // a file that cannot be read has no number
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

func field(root fs.FS, name, word string) (int64, bool) {
	text, _ := fs.ReadFile(root, name)
	for line := range strings.Lines(string(text)) {
		if parts := strings.Fields(line); len(parts) > 1 && parts[0] == word {
			n, err := strconv.ParseInt(parts[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
