//go:build cuda

package engine

import (
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types/shapes"
)

const builtCUDA = true

// openCUDA loads the PJRT plugin and opens an XLA client on it.
func openCUDA(opts Options) (compute.Backend, error) {
	plugin, err := FindCUDAPlugin()
	if err != nil {
		return nil, err
	}
	if err := checkPluginPath(plugin); err != nil {
		return nil, err
	}
	if err := checkPluginFile(plugin); err != nil {
		return nil, err
	}
	if err := setXLAEnvironment(plugin, opts.Cache); err != nil {
		return nil, err
	}
	if releaseOf(plugin) > 0 {
		visible, limited := os.LookupEnv("CUDA_VISIBLE_DEVICES")
		if err := askDriver().check(plugin, visible, limited); err != nil {
			return nil, err
		}
		warn := opts.Warn
		if warn == nil {
			warn = func(string, ...any) {}
		}
		if err := loadLibraries(plugin, opts.Count, loadLibrary, warn); err != nil {
			return nil, err
		}
	}
	if err := loadLibrary(plugin); err != nil { // go-xla then finds it loaded
		return nil, fmt.Errorf("PJRT plugin %s does not load (%w): `ldd` lists the libraries that are "+
			"missing; %s", plugin, err, getCUDA)
	}
	backend, err := openXLA(plugin, opts)
	switch {
	case err != nil && strings.Contains(err.Error(), "No visible GPU"):
		return nil, fmt.Errorf("PJRT plugin %s sees no GPU: it needs an NVIDIA GPU, its driver "+
			"(`nvidia-smi` lists both), and a CUDA_VISIBLE_DEVICES that does not hide it: %w", plugin, err)
	case err != nil:
		return nil, advisedError{fmt.Errorf("PJRT plugin %s: %w", plugin, err)}
	}
	return backend, nil
}

// setXLAEnvironment sets XLA_FLAGS to the flags for the toolkit's directory, as JAX does when it
// loads the plugin, and for the cache. It disables go-xla's own check, which expects a different
// directory layout from JAX's and prints long warnings.
func setXLAEnvironment(plugin, cache string) error {
	const variable, check = "XLA_FLAGS", "GOPJRT_CUDA_CHECKS"
	flags, err := cacheFlags(cache)
	if err != nil {
		return err
	}
	flags = strings.TrimSpace(xlaFlags(os.Getenv(variable), toolkitIn(plugin)) + flags)
	if flags != "" {
		if err := os.Setenv(variable, flags); err != nil {
			return fmt.Errorf("setting %s: %w", variable, err)
		}
	}
	if os.Getenv(check) == "" {
		if err := os.Setenv(check, "0"); err != nil {
			return fmt.Errorf("setting %s: %w", check, err)
		}
	}
	return nil
}

// completeProgram completes a program before it is compiled. It declares which output may alias
// each donated input (pairs maps input indices to output indices); otherwise XLA would free donated
// inputs only after the step. It then replaces calls of placeholder functions by the kernels they
// stand for, or by collectives over the given number of replicas. It has to edit recorded
// statements, because go-xla's custom calls have no backend_config and its only collectives are
// reductions.
func completeProgram(
	builder compute.Builder, pairs map[int]int, callees map[string]callee, replicas int,
) error {
	main := hidden(builder.Main(), "fn").Interface().(*stablehlo.Function)
	for input, output := range pairs {
		// XLA reads this as "may alias": it first copies an input that a call does not donate.
		x := main.Inputs[input]
		if x.Attributes == nil {
			x.Attributes = map[string]any{}
		}
		x.Attributes["tf.aliasing_output"] = int32(output)
	}
	replaced := map[string]bool{}
	var replaceIn func(f *stablehlo.Function) error
	replaceIn = func(f *stablehlo.Function) error {
		for _, s := range f.Statements {
			for _, inner := range s.FunctionParameters {
				if err := replaceIn(inner); err != nil {
					return err
				}
			}
			called, ok := s.Attributes["callee"].(interface{ ToStableHLO() string })
			if !ok {
				continue
			}
			name := strings.TrimPrefix(called.ToStableHLO(), "@")
			if c, ok := callees[name]; ok {
				if err := c.replace(s, replicas); err != nil {
					return err
				}
				replaced[name] = true
			}
		}
		return nil
	}
	if err := replaceIn(main); err != nil {
		return err
	}
	if len(replaced) < len(callees) { // the bodies of the others would be executed in their place
		return fmt.Errorf("found calls of only %d of the %d kernels and collectives", len(replaced),
			len(callees))
	}
	return nil
}

// replace turns a statement into a call of a Triton kernel or a collective over all replicas.
func (c callee) replace(s *stablehlo.Statement, replicas int) error {
	switch c.collective {
	case "":
		s.Attributes = map[string]any{"call_target_name": "__gpu$xla.gpu.triton",
			"api_version": int32(4), "backend_config": c.kernel}
		return setOperation(s, "CustomCall")
	case allGather:
		s.Attributes = map[string]any{
			"all_gather_dim": int64(0), "replica_groups": allReplicas(replicas)}
		return setOperation(s, "AllGather")
	}
	scalar := shapes.Make(s.Inputs[0].Shape().DType)
	sum := s.Function.Closure()
	x, err := sum.Input(scalar)
	if err != nil {
		return err
	}
	y, err := sum.Input(scalar)
	if err != nil {
		return err
	}
	total, err := stablehlo.Add(x, y)
	if err != nil {
		return err
	}
	if err := sum.Return(total); err != nil {
		return err
	}
	s.Attributes = map[string]any{
		"scatter_dimension": int64(0), "replica_groups": allReplicas(replicas)}
	s.AddFunctionParameter("computation", sum)
	return setOperation(s, "ReduceScatter")
}

// allReplicas is the replica_groups attribute of a collective over the given number of replicas.
type allReplicas int

// ToStableHLO returns a single group of all replicas.
func (n allReplicas) ToStableHLO() string {
	var list []string
	for i := range int(n) {
		list = append(list, strconv.Itoa(i))
	}
	return fmt.Sprintf("dense<[[%s]]> : tensor<1x%dxi64>", strings.Join(list, ", "), int(n))
}

// setOperation sets the operation of a statement by reflection: its type is internal to go-xla.
func setOperation(s *stablehlo.Statement, name string) error {
	field := reflect.ValueOf(s).Elem().FieldByName("OpType")
	const most = 1000 // an upper bound on the number of operations
	for i := range int64(most) {
		field.SetInt(i)
		if fmt.Sprint(field.Interface()) == name {
			return nil
		}
	}
	return fmt.Errorf("kernels: go-xla has no operation %s", name)
}

// ToStableHLO returns the kernel as the backend_config of a custom call.
func (k Kernel) ToStableHLO() string {
	text := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(k.Text)
	return fmt.Sprintf(`{debug = false, grid_x = %d : i32, grid_y = 1 : i32, grid_z = 1 : i32, `+
		`ir = "%s", name = "%s", num_stages = 1 : i32, num_warps = %d : i32}`,
		k.Grid, text, k.Name, k.Warps)
}
