package processes

import (
	"cmp"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/internal/safetext"
)

// Position holds what a launcher tells a process: its rank and the address of process 0.
type Position struct {
	Rank, Size int    // rank from 0, and number of processes
	Address    string // host and port at which process 0 listens
	// Local is the rank among the processes on the same machine, or -1 if it is unknown.
	Local int
}

// Sources lists the valid sources of [Find], for help texts and errors.
const Sources = `slurm, torchrun, kubernetes, or RANK/SIZE@HOST:PORT`

// maxProcesses is the largest number of processes. It equals the maximum of device.count, because
// each process has at least one GPU.
const maxProcesses = 1024

// defaultPort is the default port of process 0, the same as torchrun's.
const defaultPort = "29500"

var explicit = regexp.MustCompile(`^(\d+)/(\d+)@(.+)$`)

// Find returns the position of this process. source is the position itself, RANK/SIZE@HOST:PORT, or
// the name of a launcher, which provides it in environment variables.
func Find(source string, getenv func(string) string) (Position, error) {
	e := environment{source: source, get: getenv}
	var p Position
	switch at := explicit.FindStringSubmatch(source); {
	case at != nil:
		p = Position{Rank: e.number("RANK", at[1]), Size: e.number("SIZE", at[2]),
			Address: at[3], Local: -1}
	case source == "slurm":
		p = e.slurm()
	case source == "torchrun":
		port := e.needNumber("MASTER_PORT")
		if strings.EqualFold(getenv("TORCHELASTIC_USE_AGENT_STORE"), "true") {
			port++ // torchrun listens at MASTER_PORT itself
		}
		p = Position{
			Rank: e.needNumber("RANK"), Size: e.needNumber("WORLD_SIZE"), Local: e.local("LOCAL_RANK"),
			Address: net.JoinHostPort(e.need("MASTER_ADDR"), strconv.Itoa(port)),
		}
	case source == "kubernetes":
		port := cmp.Or(getenv("MASTER_PORT"), defaultPort)
		p = Position{
			Rank: e.needNumber("JOB_COMPLETION_INDEX"), Size: e.needNumber("WORLD_SIZE"),
			Address: net.JoinHostPort(e.need("MASTER_ADDR"), port),
			Local:   0, // a pod sees the GPUs that it was given
		}
	default:
		return p, fmt.Errorf("processes %q: want %s", source, Sources)
	}
	if e.err != nil {
		return p, e.err
	}
	host, port, err := net.SplitHostPort(p.Address)
	n, wrong := strconv.Atoi(port)
	switch {
	case p.Size < 1 || p.Size > maxProcesses:
		err = fmt.Errorf("processes %q: got %d processes, want 1 to %d", source, p.Size, maxProcesses)
	case p.Rank < 0 || p.Rank >= p.Size:
		err = fmt.Errorf("processes %q: got rank %d of %d, want 0 to %d",
			source, p.Rank, p.Size, p.Size-1)
	case err != nil || host == "" || safetext.Line(host) != host || wrong != nil || n < 1 || n > 65535:
		err = fmt.Errorf("processes %q: got address %q of process 0, want HOST:PORT", source, p.Address)
	}
	return p, err
}

// environment reads a launcher's environment variables and keeps the first error.
type environment struct {
	source string
	get    func(string) string
	err    error
}

func (e *environment) need(name string) string {
	value := e.get(name)
	if value == "" && e.err == nil {
		hint := map[string]string{
			"slurm":    "it is set where srun starts the command",
			"torchrun": "torchrun sets it",
			"kubernetes": "an indexed Job sets JOB_COMPLETION_INDEX, and its template has to set " +
				"WORLD_SIZE, the number of pods, and MASTER_ADDR, the host name of the first",
		}
		e.err = fmt.Errorf("processes %q: %s is not set: %s", e.source, name, hint[e.source])
	}
	return value
}

func (e *environment) number(name, text string) int {
	n, err := strconv.Atoi(text)
	if err != nil && e.err == nil {
		e.err = fmt.Errorf("processes %q: %s is %q, want an integer", e.source, name, text)
	}
	return n
}

func (e *environment) needNumber(name string) int { return e.number(name, e.need(name)) }

func (e *environment) local(name string) int {
	if text := e.get(name); text != "" {
		return e.number(name, text)
	}
	return -1
}

// slurm reads the variables set by srun. Process 0 runs on the first node of the step. Its port
// depends on the job, because jobs can share a node, and is above Linux's default ephemeral ports.
func (e *environment) slurm() Position {
	const first, ports = 61440, 4096
	nodes := e.get("SLURM_STEP_NODELIST")
	if nodes == "" {
		nodes = e.need("SLURM_JOB_NODELIST")
	}
	job := e.needNumber("SLURM_JOB_ID")
	if step := e.get("SLURM_STEP_ID"); step != "" {
		job += e.number("SLURM_STEP_ID", step)
	}
	size := e.get("SLURM_STEP_NUM_TASKS")
	if size == "" {
		size = e.need("SLURM_NTASKS")
	}
	// Take the first host from a list such as "rack[1-2]node[007-012,020],login".
	host, _, _ := strings.Cut(ranges.ReplaceAllString(nodes, "$1"), ",")
	return Position{
		Rank: e.needNumber("SLURM_PROCID"), Size: e.number("SLURM_NTASKS", size),
		Address: net.JoinHostPort(host, strconv.Itoa(first+job%ports)), Local: e.local("SLURM_LOCALID"),
	}
}

var ranges = regexp.MustCompile(`\[([^],-]*)[^]]*\]`)
