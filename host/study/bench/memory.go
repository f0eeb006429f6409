package bench

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/compute/loops"
)

// Sizes in bytes. Where the system tells nothing of its caches, they are taken to be like those of most processors.
const (
	usualSecond = 512 << 10
	leastMemory = 256 << 20
	chunk       = 1 << 20 // of memory that a call uses, before it is time to look at the clock
	float       = 4
)

// memory lists what is done with the second cache and with memory in the report. Bytes is how much memory is used; 0: four times
// what all last caches hold together, and at least leastMemory.
func (r *PeakReport) memory(bytes int) (list []subject) {
	second, last := caches()
	if bytes == 0 {
		bytes = max(leastMemory, 4*last)
	}
	most := r.Threads[len(r.Threads)-1]
	whole := make([]float32, max(bytes, most*max(chunk, second))/float)
	loops.Fill(whole, 1) // pages that were never written may all be the same one
	places := []struct {
		name  string
		each  func(threads int) int // floats of a thread
		chunk int                   // those that a call uses
	}{
		{"second cache", func(int) int { return second / 2 / float }, second / 2 / float},
		{"memory", func(threads int) int { return len(whole) / threads }, chunk / float},
	}
	uses := []struct {
		name   string
		arrays int
		do     func(a, b []float32)
	}{
		{"read", 1, func(a, _ []float32) {
			var sum [1]float32
			loops.GroupFold(loops.Add, sum[:], a, len(a))
		}},
		{"write", 1, func(a, _ []float32) { clear(a) }},
		{"copy", 2, func(a, b []float32) { copy(a, b) }},
	}
	r.Memory = make([]Named, 0, len(places)*len(uses))
	for _, place := range places {
		for _, use := range uses {
			size := place.chunk / use.arrays / 64 * 64 // whole vectors
			r.Memory = append(r.Memory, Named{Name: place.name + ", " + use.name})
			list = append(list, subject{
				work: float64(use.arrays * size * float), rates: &r.Memory[len(r.Memory)-1].Rates, each: true,
				start: func(threads int) func(int) error {
					length := place.each(threads) / use.arrays / size * size
					const line = 16
					at := make([]int, threads*line) // each thread's is in a line of the cache of its own
					return func(thread int) error {
						// A thread goes through arrays of its own, again and again.
						position := &at[thread*line]
						from := whole[thread*use.arrays*length+*position:]
						use.do(from[:size], from[(use.arrays-1)*length:][:size])
						if *position += size; *position == length {
							*position = 0
						}
						return nil
					}
				},
			})
		}
	}
	return list
}

// caches returns the size of the second cache of the first processor, and of the last caches of all together.
func caches() (second, last int) {
	levels := map[int]int{} // sizes together, by level
	seen := map[string]bool{}
	paths, _ := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/cache/index[0-9]*") // fails for bad patterns only
	for _, path := range paths {
		text := func(name string) string {
			line, _ := os.ReadFile(filepath.Join(path, name)) // what cannot be read is not known
			return strings.TrimSpace(string(line))
		}
		level, _ := strconv.Atoi(text("level"))
		kib, err := strconv.Atoi(strings.TrimSuffix(text("size"), "K"))
		if err != nil || text("type") == "Instruction" {
			continue
		}
		if level == 2 && second == 0 {
			second = kib << 10
		}
		if key := strconv.Itoa(level) + " " + text("shared_cpu_list"); !seen[key] {
			seen[key] = true
			levels[level] += kib << 10
		}
	}
	if second == 0 {
		second = usualSecond
	}
	for _, size := range levels {
		last = max(last, size)
	}
	return second, last
}
