package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"gonum.org/v1/gonum/stat"
)

// Process is the measurements of one run of a benchmark in a process of its own.
type Process struct {
	Seconds float64 `json:"seconds"` // time of a step, as reported by the process
	// Peak is the largest resident size, in bytes, of the process and those it waited
	// for.
	Peak int64   `json:"peak_memory_bytes"`
	Wall float64 `json:"wall_seconds"` // of the whole process
	CPU  float64 `json:"cpu_seconds"`
	// FirstStep is the time from the start of the process to the end of its first step; 0
	// if the process does not report it.
	FirstStep float64 `json:"first_step_seconds,omitempty"`
}

// Comparison holds two benchmarks run in turn, A B A B ….
type Comparison struct {
	A, B Side
	// Ratio is the median over the rounds of B's step time divided by A's: how many times
	// as fast A is. Low and High are the smallest and largest ratio.
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"ratio_lowest"`
	High  float64 `json:"ratio_highest"`
	// Memory is the ratio of the medians of peak memory, A's to B's.
	Memory float64 `json:"memory_ratio"`
}

// Side is one side of a comparison.
type Side struct {
	Command string    `json:"command"`
	Runs    []Process `json:"runs"`
	Median  Process   `json:"median"`
}

// Compare runs both commands in turn, rounds times each after one round that does not
// count. Each must print, at the end of its output, a JSON object whose "seconds" is the
// time of one step and whose optional "first_step_unix" is the time at which its first
// step was done, in seconds since 1970. progress is called after each counted run.
func Compare(ctx context.Context, a, b []string, rounds int, progress func(side string, p Process)) (*Comparison, error) {
	c := &Comparison{A: Side{Command: strings.Join(a, " ")}, B: Side{Command: strings.Join(b, " ")}}
	for round := range rounds + 1 {
		for _, side := range []struct {
			name string
			args []string
			to   *Side
		}{{"A", a, &c.A}, {"B", b, &c.B}} {
			p, err := runProcess(ctx, side.args)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", side.to.Command, err)
			}
			if round == 0 {
				continue
			}
			side.to.Runs = append(side.to.Runs, p)
			progress(side.name, p)
		}
	}
	c.A.summarize()
	c.B.summarize()
	r := ratios(c.B.column(Process.seconds), c.A.column(Process.seconds))
	c.Ratio, c.Low, c.High = quantile(r, 0.5), quantile(r, 0), quantile(r, 1)
	if c.B.Median.Peak > 0 {
		c.Memory = float64(c.A.Median.Peak) / float64(c.B.Median.Peak)
	}
	return c, nil
}

func (p Process) seconds() float64 { return p.Seconds }

func (s *Side) column(of func(Process) float64) []float64 {
	out := make([]float64, len(s.Runs))
	for i, p := range s.Runs {
		out[i] = of(p)
	}
	return out
}

func (s *Side) summarize() {
	median := func(of func(Process) float64) float64 { return quantile(s.column(of), 0.5) }
	s.Median = Process{
		Seconds:   median(Process.seconds),
		Peak:      int64(median(func(p Process) float64 { return float64(p.Peak) })),
		Wall:      median(func(p Process) float64 { return p.Wall }),
		CPU:       median(func(p Process) float64 { return p.CPU }),
		FirstStep: median(func(p Process) float64 { return p.FirstStep }),
	}
}

// letGo is how long to wait for a benchmark that was stopped: processes that it has started
// may outlive it and hold its output open.
const letGo = 5 * time.Second

// runProcess runs one side once.
func runProcess(ctx context.Context, args []string) (Process, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = letGo
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return Process{}, errors.Join(err, ctx.Err(), fmt.Errorf("it wrote %q", tail(stderr.Bytes())))
	}
	p := Process{Wall: time.Since(began).Seconds(), CPU: (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		p.Peak = usage.Maxrss
		if runtime.GOOS == "linux" {
			p.Peak <<= 10 // it counts in KiB, others in bytes
		}
	}
	out, err := parseOutput(stdout.Bytes())
	if err != nil {
		return Process{}, err
	}
	p.Seconds = out.Seconds
	if out.FirstStep > 0 {
		p.FirstStep = out.FirstStep - float64(began.UnixNano())/1e9
	}
	return p, nil
}

// lastObject is the JSON object at the end of a text, on one line or more; nil for none.
func lastObject(text []byte) []byte {
	text = bytes.TrimSpace(text)
	for end := len(text); end > 0; {
		start := bytes.LastIndexByte(text[:end], '\n') + 1
		if text[start] == '{' && json.Valid(text[start:]) {
			return text[start:]
		}
		end = max(0, start-1)
	}
	return nil
}

// benchmarkOutput is the JSON object that ends the output of a benchmark.
type benchmarkOutput struct {
	Seconds   float64 `json:"seconds"`         // of a step
	FirstStep float64 `json:"first_step_unix"` // when it ended; 0 if it does not say
}

// parseOutput reads the end of an output.
func parseOutput(output []byte) (benchmarkOutput, error) {
	var out benchmarkOutput
	if err := json.Unmarshal(lastObject(output), &out); err != nil || out.Seconds <= 0 {
		return benchmarkOutput{}, fmt.Errorf(`the end of its output is %q, want a JSON object with the "seconds" of a step`, tail(output))
	}
	return out, nil
}

// tail is the end of a text, for a message.
func tail(text []byte) string {
	const length = 300
	text = bytes.TrimSpace(text)
	if len(text) > length {
		return "…" + string(text[len(text)-length:])
	}
	return string(text)
}

// Point is one size of a scaling measurement.
type Point struct {
	Size       int     `json:"size"`
	Seconds    float64 `json:"seconds"` // median time of a step
	FLOPs      float64 `json:"flops_per_step"`
	PeakMemory int64   `json:"peak_memory_bytes"`
}

// Growth says how step time and memory grow with one of the sizes: each follows
// size^exponent, fitted by least squares on logarithms.
type Growth struct {
	Dimension string  `json:"dimension"` // width, layers, context or batch
	Points    []Point `json:"points"`
	Time      float64 `json:"time_exponent"`
	FLOPs     float64 `json:"flops_exponent"`
	Memory    float64 `json:"memory_exponent"`
}

// Scale measures the growth along one dimension at two or more different sizes. measure
// runs one size in a process of its own, because memory is measured for whole processes.
func Scale(ctx context.Context, dimension string, sizes []int, measure func(ctx context.Context, size int) (Point, error)) (Growth, error) {
	g := Growth{Dimension: dimension}
	if distinct := slices.Compact(slices.Sorted(slices.Values(sizes))); len(distinct) < 2 || distinct[0] < 1 {
		return g, fmt.Errorf("%s: sizes %v show no growth; want at least two different ones, of 1 or more", dimension, sizes)
	}
	for _, size := range sizes {
		p, err := measure(ctx, size)
		if err != nil {
			return g, fmt.Errorf("%s %d: %w", dimension, size, err)
		}
		p.Size = size
		g.Points = append(g.Points, p)
	}
	g.Time = exponent(g.Points, func(p Point) float64 { return p.Seconds })
	g.FLOPs = exponent(g.Points, func(p Point) float64 { return p.FLOPs })
	g.Memory = exponent(g.Points, func(p Point) float64 { return float64(p.PeakMemory) })
	return g, nil
}

// exponent fits y = c·size^k and returns k; 0 where a value is not known.
func exponent(points []Point, y func(Point) float64) float64 {
	var sizes, values []float64
	for _, p := range points {
		if !(y(p) > 0) {
			return 0
		}
		sizes, values = append(sizes, math.Log(float64(p.Size))), append(values, math.Log(y(p)))
	}
	_, k := stat.LinearRegression(sizes, values, nil, false)
	return k
}
