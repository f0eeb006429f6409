package plugin

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

// MemoryVariable is the environment variable that limits the memory that a plugin may
// use, in bytes or with one of the suffixes K, M, G and T.
const MemoryVariable = "CAGE_PLUGIN_MEMORY"

// leastMemory is enough for any plugin to start, and for most to work.
const leastMemory = 256 << 20

// memoryLimit is how many bytes a plugin, and each process that it starts, may use. By default that
// is half of the machine: plenty for a plugin, which sees no tensors, and the host can go on beside
// it. It is no more than the host's own hard limit, which only root may raise.
func memoryLimit(given uint64) (uint64, error) {
	limit := uint64(math.MaxUint64) // where the machine does not say how much there is
	if half := machineMemory() / 2; half > 0 {
		limit = max(half, leastMemory)
	}
	if text := os.Getenv(MemoryVariable); given > 0 {
		limit = max(given, leastMemory)
	} else if text != "" {
		var err error
		if limit, err = parseSize(text); err != nil || limit < leastMemory {
			return 0, fmt.Errorf("%s is %q: want a size of at least 256M, such as 8G", MemoryVariable, text)
		}
	}
	return min(limit, hardLimit()), nil
}

// parseSize reads a number of bytes, with an ending of a power of 1024.
func parseSize(text string) (uint64, error) {
	digits := strings.TrimRight(text, "KMGT")
	unit, ok := map[string]uint64{"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}[text[len(digits):]]
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || !ok || n > math.MaxUint64/unit {
		return 0, fmt.Errorf("%q is no size", text)
	}
	return n * unit, nil
}

// memoryComplaints are words in which programs of several languages complain of a lack of
// memory.
var memoryComplaints = []string{"out of memory", "cannot allocate memory", "MemoryError", "bad_alloc", "Cannot allocate memory"}

func explainMemory(e *Error, limit uint64) *Error {
	if limit == math.MaxUint64 { // there is none
		return e
	}
	text := e.Err.Error() + strings.Join(e.Output, "\n")
	if slices.ContainsFunc(memoryComplaints, func(words string) bool { return strings.Contains(text, words) }) {
		way := fmt.Sprintf("%s=%dM allows twice as much", MemoryVariable, limit>>19)
		if limit >= hardLimit() {
			way = "the hard limit of this process, as ulimit -H -d shows it"
		}
		e.Err = fmt.Errorf("%w; it may use %d MiB of memory (%s)", e.Err, limit>>20, way)
	}
	return e
}
