package huggingface

import (
	"cmp"
	"encoding/json/v2"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/halffloat"
	"github.com/cage-qat/cage/internal/lists"
)

// This file is written from the descriptions of the formats and shares no code with package export,
// which writes some of them, so that an export can be checked by reading it.

// Packing says how a checkpoint stores matrices in few bits.
type Packing struct {
	schemes []scheme // of compressed-tensors
	block   []int    // of FP8: rows and columns that share a scale
	mlx     *mlxQuantization
	inputs  bool // whether the inputs of layers are to be quantized, too
}

// scheme is how compressed-tensors stores the matrices of some modules.
type scheme struct {
	format   string
	targets  []string // names of modules, "re:" and a pattern of names, or "Linear"
	patterns []*regexp.Regexp
	bits     int
	block    []int // rows and columns that share a scale
	zeros    bool  // whether there are zero points
	ordered  bool  // whether columns have their groups in weight_g_idx, as of GPTQ's order
}

type mlxQuantization struct {
	mlxMode
	Modules map[string]mlxMode `json:",embed"`
}

type mlxMode struct {
	Group int    `json:"group_size"`
	Bits  int    `json:"bits"`
	Mode  string `json:"mode"`
}

// Formats of compressed-tensors.
const (
	formatPacked = "pack-quantized"
	formatInt    = "int-quantized"
	formatFloat  = "float-quantized"
	formatNaive  = "naive-quantized"
	formatMXFP4  = "mxfp4-pack-quantized"
	formatMXFP8  = "mxfp8-quantized"
	formatNVFP4  = "nvfp4-pack-quantized"
)

const mlxKey = "quantization"

// packing reads how matrices are stored; nil if all are floats.
func (k *keys) packing() *Packing {
	p := &Packing{}
	if k.has(mlxKey) { // MLX repeats it as quantization_config
		k.has(quantizationKey)
		p.mlx = &mlxQuantization{}
		if err := json.Unmarshal(k.values[mlxKey], p.mlx); err != nil {
			k.fault(mlxKey, k.found(mlxKey), "group_size, bits and mode, as MLX writes them")
		}
		return p
	}
	if !k.has(quantizationKey) {
		return nil
	}
	const none = "no such key"
	k.object(quantizationKey, func(q *keys) {
		switch q.text("quant_method") {
		case "compressed-tensors":
			p.readSchemes(q)
			q.onlyKnown(none, "global_compression_ratio", "ignore", "version")
		case "fp8":
			q.read("weight_block_size", &p.block, "two integers")
			p.inputs = true
			q.onlyKnown(none, "activation_scheme", "fmt", "modules_to_not_convert", "scale_fmt")
		default:
			q.fault("quant_method", q.found("quant_method"), "compressed-tensors or fp8, a directory of "+
				"MLX, or a checkpoint in F32, BF16 or F16, such as the one from which it was made")
		}
	})
	return p
}

func (p *Packing) readSchemes(q *keys) {
	format := q.text("format")
	only(q, "quantization_status", "compressed")
	q.object("sparsity_config", func(s *keys) { only(s, "format", "dense") })
	q.object("config_groups", func(groups *keys) {
		for _, name := range slices.Sorted(maps.Keys(groups.values)) {
			groups.object(name, func(g *keys) {
				s := scheme{format: cmp.Or(g.text("format"), format)}
				g.read("targets", &s.targets, "a list of strings")
				for _, target := range s.targets {
					pattern, ok := strings.CutPrefix(target, "re:")
					if re, err := regexp.Compile("^(?:" + pattern + ")"); ok && err == nil {
						s.patterns = append(s.patterns, re)
					}
				}
				g.object("weights", func(w *keys) {
					w.read("num_bits", &s.bits, "an integer")
					w.read("block_structure", &s.block, "two integers")
					s.zeros = w.has("symmetric") && !w.flag("symmetric")
					order := ""
					w.read("actorder", &order, "a string")
					s.ordered = order == "group" || order == "dynamic"
				})
				for _, key := range []string{"input_activations", "output_activations"} {
					p.inputs = g.has(key) || p.inputs
				}
				g.onlyKnown("no such key")
				p.schemes = append(p.schemes, s)
			})
		}
	})
}

// schemeOf returns the scheme that names a module, or has a pattern for it, or is for all linear
// layers.
func (p *Packing) schemeOf(module string) (best scheme) {
	rank := 0
	for _, s := range p.schemes {
		r := 0
		switch {
		case slices.Contains(s.targets, module):
			r = 3
		case slices.ContainsFunc(s.patterns,
			func(re *regexp.Regexp) bool { return re.MatchString(module) }):
			r = 2
		case slices.Contains(s.targets, "Linear"):
			r = 1
		}
		if r > rank {
			best, rank = s, r
		}
	}
	return best
}

// unpackedTensors are those of a checkpoint, with packed matrices as floats.
type unpackedTensors struct {
	files    Tensors
	infos    []safetensors.Info
	matrices map[string]*matrix // by name
}

// partsOf are names of tensors that belong to a packed matrix, after that of its module.
var partsOf = strings.Fields("weight_scale weight_global_scale weight_shape weight_zero_point " +
	"weight_g_idx weight_scale_inv scales biases input_scale input_global_scale input_zero_point")

func (p *Packing) unpack(files Tensors) (_ Tensors, faults []string) {
	if p == nil {
		return files, nil
	}
	u := &unpackedTensors{files: files, matrices: map[string]*matrix{}}
	parts := map[string]bool{}
	for _, info := range files.Tensors() {
		name := strings.TrimSuffix(info.Name, "_packed")
		module, ok := strings.CutSuffix(name, ".weight")
		if !ok || slices.Contains(readable, info.DType) {
			continue
		}
		m := &matrix{files: files, codes: info, shape: slices.Clone(info.Shape)}
		if err := p.describe(m, module); err != nil {
			faults = append(faults, fmt.Sprintf("tensor %s: %v", info.Name, err))
		}
		u.matrices[name] = m
		for _, part := range partsOf {
			parts[module+"."+part] = true
		}
		parts[info.Name] = true
		u.infos = append(u.infos, safetensors.Info{Name: name, DType: safetensors.F32, Shape: m.shape})
	}
	for _, info := range files.Tensors() {
		if !parts[info.Name] {
			u.infos = append(u.infos, info)
		}
	}
	return u, faults
}

// Tensors implements [Tensors].
func (u *unpackedTensors) Tensors() []safetensors.Info { return u.infos }

// Tensor implements [Tensors].
func (u *unpackedTensors) Tensor(name string) (safetensors.Tensor, error) {
	if m := u.matrices[name]; m != nil {
		return safetensors.Lazy(name, m.shape, m.values), nil
	}
	return u.files.Tensor(name)
}

// Close implements [Tensors].
func (u *unpackedTensors) Close() error { return u.files.Close() }

// keeping are the quantizers of weights for which numbers of a type are on the grid already.
var keeping = map[string]string{
	"Q1_0":  `{plugin = "absmax", bits = 1, grid = "sign", ` + groups(128),
	"Q2_0":  `{plugin = "absmax", bits = 2, rounding = "llama.cpp", ` + groups(64),
	"Q4_1":  `{plugin = "absmax", grid = "minimum", ` + groups(32),
	"Q5_1":  `{plugin = "absmax", bits = 5, grid = "minimum", ` + groups(32),
	"Q4_0":  `{plugin = "absmax", grid = "signed", ` + groups(32),
	"Q5_0":  `{plugin = "absmax", bits = 5, grid = "signed", ` + groups(32),
	"Q8_0":  `{plugin = "absmax", bits = 8, rounding = "llama.cpp", ` + groups(32),
	"TQ1_0": `{plugin = "absmax", bits = 2, rounding = "llama.cpp", ` + groups(256),
	"TQ2_0": `{plugin = "absmax", bits = 2, rounding = "llama.cpp", ` + groups(256),
	"MXFP4": `{plugin = "mxfp4"}`,
}

func groups(size int) string {
	return fmt.Sprintf(`granularity = "group", group = %d, scale_dtype = "f16"}`, size)
}

// NoteStored puts the types in which tensors are stored in few bits, as typ tells them, into the
// report, and warns of what that means. typ returns "" for a tensor of floats, and kept, where the
// type does not tell it, the quantizer of weights that keeps the numbers of a tensor, or "".
func (c *Checkpoint) NoteStored(typ, kept func(tensor string) string) {
	tensors := map[string][]string{}
	for i, a := range c.Report.Applied {
		if name := typ(a.Tensor); name != "" {
			c.Report.Applied[i].Type = safetensors.DType(name)
			tensors[name] = append(tensors[name], a.Tensor)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		text := fmt.Sprintf("%s stored as %s", matrices(len(tensors[name])), name)
		if keeps := cmp.Or(keeping[name], kept(tensors[name][0])); keeps != "" {
			text += ", which training keeps at its start with quantizer.weights = " + keeps
		}
		c.Stored = append(c.Stored, text)
		c.Config.Warnings = append(c.Config.Warnings, text+": the precision before that is lost")
	}
}

func matrices(n int) string {
	if n == 1 {
		return "1 matrix is"
	}
	return fmt.Sprintf("%d matrices are", n)
}

// A matrix is stored as codes, each of which stands for (number − zero)·scale/global + bias.
type matrix struct {
	files Tensors
	codes safetensors.Info
	shape []int
	typ   string // in messages
	// number returns the number of the code in a column of a row.
	number func(row []byte, column int) float32
	// Names of tensors; those but the first may be "".
	scales, zeros, biases, global string
	// scale returns the number of a scale in a byte.
	scale func(byte) float32
	bits  int    // of integers
	per   int    // integers in a word of 32 bits, whose other bits are unused; 0: there are none
	order string // of the tensor with the group of each column, or ""
	group int    // elements of a row that share a scale, where the format says it
	block []int  // rows and columns that share a scale, where the format says it
}

// describe fills in how a module's matrix is stored, from the type and shape of its codes.
func (p *Packing) describe(m *matrix, module string) error {
	if len(m.shape) != 2 {
		return fmt.Errorf("found shape %v, want two axes", m.shape)
	}
	name := module + ".weight"
	m.scales = name + "_scale"
	dtype, s := m.codes.DType, p.schemeOf(module)
	if s.zeros {
		m.zeros = name + "_zero_point"
	}
	switch isFloat8 := dtype == safetensors.F8E4M3; {
	case p.mlx != nil && dtype == safetensors.U32:
		return p.mlx.describe(m, module)
	case s.format == formatPacked && dtype == safetensors.I32 && s.bits >= 1 && s.bits <= 8:
		m.typ, m.bits = fmt.Sprintf("int%d", s.bits), s.bits
		m.number = fields(s.bits, 1<<(s.bits-1))
		if s.ordered {
			m.order = name + "_g_idx"
		}
		return m.readShape(name + "_shape")
	case (s.format == formatInt || s.format == formatNaive) && dtype == safetensors.I8:
		m.typ, m.bits = "int8", 8
		m.number = func(row []byte, column int) float32 { return float32(int8(row[column])) }
	case s.format == formatMXFP4 && dtype == safetensors.U8:
		m.typ, m.number, m.scale, m.group = "MXFP4", nibbles, powerOfTwo, 32
		m.shape[1] *= 2
	case s.format == formatNVFP4 && dtype == safetensors.U8:
		m.typ, m.number, m.scale, m.group = "NVFP4", nibbles, eightBit, 16
		m.shape[1] *= 2
		m.global = name + "_global_scale"
	case s.format == formatMXFP8 && isFloat8:
		m.typ, m.number, m.scale, m.group = "MXFP8", bytes8, powerOfTwo, 32
	case (s.format == formatFloat || s.format == formatNaive) && isFloat8:
		m.typ, m.number, m.block = "FP8", bytes8, s.block
	case len(p.block) == 2 && min(p.block[0], p.block[1]) > 0 && isFloat8:
		m.typ, m.number, m.block = "FP8", bytes8, p.block
		m.scales = name + "_scale_inv"
	default:
		return fmt.Errorf("found %s of shape %v, which %s does not describe (format %q, %d bits)",
			dtype, m.shape, quantizationKey, s.format, s.bits)
	}
	return nil
}

func (q *mlxQuantization) describe(m *matrix, module string) error {
	mode, ok := q.Modules[module]
	if !ok {
		mode = q.mlxMode
	}
	mode.Mode = cmp.Or(mode.Mode, "affine")
	m.scales, m.group = module+".scales", mode.Group
	switch mode {
	case mlxMode{32, 4, "mxfp4"}:
		m.typ, m.number, m.scale = "MXFP4", nibbles, powerOfTwo
	case mlxMode{16, 4, "nvfp4"}:
		m.typ, m.number, m.scale = "NVFP4", nibbles, eightBit
	case mlxMode{32, 8, "mxfp8"}:
		m.typ, m.number, m.scale = "MXFP8", bytes8, powerOfTwo
	default:
		if mode.Mode != "affine" || mode.Bits < 1 || mode.Bits > 8 || mode.Group < 1 {
			return fmt.Errorf("found %+v in %s, want bits from 1 to 8 in groups", mode, mlxKey)
		}
		m.typ, m.bits = fmt.Sprintf("int%d", mode.Bits), mode.Bits
		m.number, m.biases = fields(mode.Bits, 0), module+".biases"
	}
	m.shape[1] = m.shape[1] * 32 / mode.Bits
	return nil
}

// readShape reads the shape of a matrix whose last codes may be padding.
func (m *matrix) readShape(name string) error {
	t, err := m.files.Tensor(name)
	if err != nil {
		return err
	}
	list, err := safetensors.Values[int64](t)
	if err != nil {
		return err
	}
	rows, bits := m.codes.Shape[0], int64(m.codes.Shape[1])*32
	if len(list) != 2 || list[0] != int64(rows) || list[1] < 1 || list[1] > bits/int64(m.bits) {
		return fmt.Errorf("%s is %v, which does not match packed words of shape %v",
			name, list, m.codes.Shape)
	}
	m.shape[1] = int(list[1])
	// compressed-tensors did not always split integers over two words.
	words, per := m.codes.Shape[1], 32/m.bits
	if words != ceil(m.shape[1]*m.bits, 32) && words == ceil(m.shape[1], per) {
		split := m.number
		m.per, m.number = per, func(row []byte, column int) float32 {
			return split(row[column/per*4:], column%per)
		}
	}
	return nil
}

// content is what the files have of a matrix.
type content struct {
	codes  []byte // row after row
	scales *spread
	zeros  []float32 // one for each scale; nil if there are none
	biases *spread   // nil if there are none
}

func (m *matrix) read() (c content, err error) {
	codes, err := m.files.Tensor(m.codes.Name)
	if err == nil {
		c.codes, err = codes.Bytes()
	}
	if err == nil {
		c.scales, err = m.part(m.scales, m.scale)
	}
	if err == nil {
		c.zeros, err = m.zeroPoints(c.scales)
	}
	if err == nil && m.biases != "" {
		c.biases, err = m.part(m.biases, nil)
	}
	return c, err
}

// values reads the matrix.
func (m *matrix) values() ([]float32, error) {
	stored, err := m.read()
	if err != nil {
		return nil, err
	}
	data, scales := stored.codes, stored.scales
	if m.global != "" {
		global, err := m.numbers(m.global, nil)
		if err != nil {
			return nil, err
		}
		if len(global) != 1 {
			return nil, fmt.Errorf("%s has %d numbers, want 1", m.global, len(global))
		}
		for i := range scales.numbers {
			scales.numbers[i] /= global[0]
		}
	}
	rows, columns := m.shape[0], m.shape[1]
	groups, err := m.groups(scales)
	if err != nil {
		return nil, err
	}
	out := make([]float32, 0, rows*columns)
	for r := range rows {
		row := data[r*len(data)/rows : (r+1)*len(data)/rows]
		for c := range columns {
			g := r/scales.height*scales.across + groups[c]
			v := m.number(row, c)
			if stored.zeros != nil {
				v -= stored.zeros[g]
			}
			v *= scales.numbers[g]
			if stored.biases != nil {
				v += stored.biases.numbers[g]
			}
			out = append(out, v)
		}
	}
	return out, nil
}

// keeps returns the quantizer that has the integers of the matrix on its grid, as the least and the
// largest code of each group in the first rows tell; "" if none is known, such as for groups of MLX
// in which code 0 does not have the largest magnitude, or there are errors that reading will tell.
func (m *matrix) keeps() string {
	if m.bits == 0 || m.order != "" {
		return ""
	}
	stored, err := m.read()
	if err != nil || stored.scales.height > 1 {
		return ""
	}
	data, scales, zeros := stored.codes, stored.scales, stored.zeros
	half, grid := float32(int(1)<<(m.bits-1)), "fit"
	switch {
	case stored.biases != nil:
		grid = "affine"
	case zeros != nil:
		grid = "asymmetric_fit"
	}
	for r := range min(m.shape[0], 64) {
		row := data[r*len(data)/m.shape[0] : (r+1)*len(data)/m.shape[0]]
		for from := 0; from < m.shape[1]; from += scales.width {
			low, high, g := float32(0), float32(0), r*scales.across+from/scales.width
			if grid == "affine" {
				low = 2*half - 1
			}
			for c := range scales.width {
				v := m.number(row, from+c)
				if zeros != nil {
					v -= zeros[g]
				}
				low, high = min(low, v), max(high, v)
			}
			switch {
			case low == high:
			case grid == "affine" && (low > 0 || high < 2*half-2 ||
				(2*stored.biases.numbers[g]+high*scales.numbers[g])*scales.numbers[g] > 0),
				zeros != nil && high-low < 2*half-2,
				grid == "fit" && low != -half && max(-low, high) != half-1:
				return ""
			}
		}
	}
	text := fmt.Sprintf(`{plugin = "absmax", bits = %d, grid = %q`, m.bits, grid)
	if scales.across > 1 {
		text += fmt.Sprintf(`, granularity = "group", group = %d`, scales.width)
	}
	for _, short := range []safetensors.DType{safetensors.BF16, safetensors.F16} {
		if scales.dtype == short || scales.dtype == safetensors.F32 && all(scales.numbers, short) {
			text += fmt.Sprintf(`, scale_dtype = %q`, strings.ToLower(string(short)))
			break
		}
	}
	return text + "}"
}

// all reports whether all numbers are ones of a type of 16 bits.
func all(numbers []float32, short safetensors.DType) bool {
	return !slices.ContainsFunc(numbers, func(v float32) bool {
		if short == safetensors.BF16 {
			return math.Float32bits(v)&0xffff != 0
		}
		return halffloat.FromHalf(halffloat.ToHalf(v)) != v
	})
}

// spread is a tensor whose elements are each for height rows and width columns of a matrix.
type spread struct {
	dtype         safetensors.DType // in the files
	numbers       []float32
	height, width int
	across        int // elements for all columns
}

// part reads the scales or biases of the matrix.
func (m *matrix) part(name string, number func(byte) float32) (*spread, error) {
	numbers, err := m.numbers(name, number)
	if err != nil {
		return nil, err
	}
	t, err := m.files.Tensor(name)
	if err != nil {
		return nil, err
	}
	rows, columns, shape := m.shape[0], m.shape[1], t.Shape
	if len(shape) < 2 { // one for the matrix, or for each row
		shape = []int{len(numbers), 1}
	}
	across := shape[1]
	switch {
	case len(shape) != 2:
	case len(m.block) == 2 && min(m.block[0], m.block[1]) > 0 &&
		shape[0] == ceil(rows, m.block[0]) && across == ceil(columns, m.block[1]):
		return &spread{t.DType, numbers, m.block[0], m.block[1], across}, nil
	case len(numbers) == 1 && m.group == 0:
		return &spread{t.DType, numbers, rows, columns, 1}, nil
	case shape[0] == rows && across > 0 && columns%across == 0 &&
		(m.group == 0 || m.group*across == columns):
		return &spread{t.DType, numbers, 1, columns / across, across}, nil
	}
	return nil, fmt.Errorf("%s has shape %v, which does not match a matrix of %v",
		name, t.Shape, m.shape)
}

func ceil(n, size int) int { return (n + size - 1) / size }

// groups returns the index of each column's scale within its row of scales.
func (m *matrix) groups(scales *spread) ([]int, error) {
	if m.order == "" {
		return lists.Make(m.shape[1], func(c int) int { return c / scales.width }), nil
	}
	t, err := m.files.Tensor(m.order)
	if err != nil {
		return nil, err
	}
	order, err := safetensors.Values[int32](t)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(order, func(g int32) bool { return g < 0 || int(g) >= scales.across }) ||
		len(order) != m.shape[1] {
		return nil, fmt.Errorf("%s: want for each of %d columns one of %d groups",
			m.order, m.shape[1], scales.across)
	}
	return lists.Map(order, func(g int32) int { return int(g) }), nil
}

// zeroPoints reads the zero points of an asymmetric matrix; nil if there are none.
func (m *matrix) zeroPoints(scales *spread) ([]float32, error) {
	if m.zeros == "" {
		return nil, nil
	}
	t, err := m.files.Tensor(m.zeros)
	if err != nil {
		return nil, err
	}
	var zeros []float32
	if n := len(scales.numbers); t.DType == safetensors.I32 && m.bits > 0 {
		words, err := safetensors.Values[int32](t) // packed along the rows
		if err != nil {
			return nil, err
		}
		across := scales.across
		down := ceil(n/across*m.bits, 32) // words
		if m.per > 0 {
			down = ceil(n/across, m.per)
		}
		if len(words) == down*across {
			for i := range n {
				bit, column := i/across*m.bits, i%across
				if m.per > 0 {
					bit = i/across/m.per*32 + i/across%m.per*m.bits
				}
				v := uint64(uint32(words[bit/32*across+column]))
				if next := (bit/32 + 1) * across; next < len(words) {
					v |= uint64(uint32(words[next+column])) << 32
				}
				zeros = append(zeros, float32(int(v>>(bit%32)&(1<<m.bits-1))-1<<(m.bits-1)))
			}
		}
	} else {
		signed := func(b byte) float32 { return float32(int8(b)) }
		if zeros, err = m.numbers(m.zeros, signed); err != nil {
			return nil, err
		}
	}
	if len(zeros) != len(scales.numbers) {
		return nil, fmt.Errorf("%s has shape %v, want a zero point for each of %d scales",
			m.zeros, t.Shape, len(scales.numbers))
	}
	return zeros, nil
}

// numbers reads a tensor of floats, or of bytes that number converts.
func (m *matrix) numbers(name string, number func(byte) float32) ([]float32, error) {
	t, err := m.files.Tensor(name)
	if err != nil {
		return nil, err
	}
	if number == nil || t.DType.Bits() != 8 {
		return safetensors.Floats(t)
	}
	data, err := t.Bytes()
	return lists.Map(data, number), err
}

// fields returns a reader of integers of some bits, from the least significant bit of a row on,
// which are stored plus offset.
func fields(bits, offset int) func(row []byte, column int) float32 {
	return func(row []byte, column int) float32 {
		at := column * bits
		v := int(row[at/8])
		if at/8+1 < len(row) {
			v |= int(row[at/8+1]) << 8
		}
		return float32(v>>(at%8)&(1<<bits-1) - offset)
	}
}

func powerOfTwo(exponent byte) float32 { return float32(math.Pow(2, float64(exponent)-127)) }

// levels holds the magnitudes of E2M1, indexed by code.
var levels = []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}

// nibbles reads E2M1 codes, two per byte, low bits first.
func nibbles(row []byte, column int) float32 {
	code := row[column/2] >> (column % 2 * 4) & 15
	if code >= 8 {
		return -levels[code-8]
	}
	return levels[code]
}

func bytes8(row []byte, column int) float32 { return eightBit(row[column]) }

// eightBit returns the number that an E4M3 code represents: a sign bit, four exponent bits, three
// mantissa bits, no infinities; 7f is NaN.
func eightBit(code byte) float32 {
	exponent, mantissa := int(code>>3&15), float64(code&7)
	v := math.Ldexp(1+mantissa/8, exponent-7)
	switch {
	case exponent == 0:
		v = math.Ldexp(mantissa/8, -6)
	case code&0x7f == 0x7f:
		v = math.NaN()
	}
	if code >= 0x80 {
		v = -v
	}
	return float32(v)
}
