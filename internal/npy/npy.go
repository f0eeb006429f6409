// Package npy reads arrays of floats in the format that NumPy's save writes (NEP 1).
package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

const magic = "\x93NUMPY"

var (
	descr   = regexp.MustCompile(`'descr': *'([^']*)'`)
	fortran = regexp.MustCompile(`'fortran_order': *(True|False)`)
	tuple   = regexp.MustCompile(`'shape': *\(([0-9, ]*)\)`)
)

// Parse returns the shape and the elements, in row-major order, of a file. Elements are float16, float32 or float64, little-endian.
func Parse(file []byte) (shape []int, data []float64, err error) {
	if len(file) < 10 || string(file[:6]) != magic {
		return nil, nil, errors.New("not a file of numpy.save")
	}
	from, size := 10, int(binary.LittleEndian.Uint16(file[8:]))
	if file[6] > 1 {
		if len(file) < 12 {
			return nil, nil, errors.New("it ends in its header")
		}
		from, size = 12, int(binary.LittleEndian.Uint32(file[8:]))
	}
	if len(file)-from < size {
		return nil, nil, errors.New("it ends in its header")
	}
	header, rest := string(file[from:from+size]), file[from+size:]
	kind, order, dims := descr.FindStringSubmatch(header), fortran.FindStringSubmatch(header), tuple.FindStringSubmatch(header)
	if kind == nil || order == nil || dims == nil {
		return nil, nil, fmt.Errorf("its header %q does not name type, order and shape", header)
	}
	if order[1] == "True" {
		return nil, nil, errors.New("it is in the order of Fortran: save numpy.ascontiguousarray(x)")
	}
	n := 1
	shape = []int{}
	for text := range strings.SplitSeq(dims[1], ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		d, err := strconv.Atoi(text)
		if err != nil || d < 1 || n > math.MaxInt32/d {
			return nil, nil, fmt.Errorf("the shape (%s) is empty or too large", dims[1])
		}
		shape, n = append(shape, d), n*d
	}
	read, ok := readers[kind[1]]
	if !ok {
		return nil, nil, fmt.Errorf("its elements are %q: save x.astype(\"float32\")", kind[1])
	}
	if len(rest) != n*read.size {
		return nil, nil, fmt.Errorf("the shape (%s) needs %d bytes, it has %d", dims[1], n*read.size, len(rest))
	}
	data = make([]float64, n)
	for i := range data {
		data[i] = read.element(rest[i*read.size:])
	}
	return shape, data, nil
}

type reader struct {
	size    int
	element func([]byte) float64
}

var readers = map[string]reader{
	"<f8": {8, func(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }},
	"<f4": {4, func(b []byte) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) }},
	"<f2": {2, func(b []byte) float64 { return half(binary.LittleEndian.Uint16(b)) }},
}

// half is the number of a float16.
func half(bits uint16) float64 {
	exponent, fraction := int(bits>>10&0x1f), float64(bits&0x3ff)
	var v float64
	switch {
	case exponent == 0x1f && fraction != 0:
		return math.NaN()
	case exponent == 0x1f:
		v = math.Inf(1)
	case exponent == 0:
		v = math.Ldexp(fraction, -24)
	default:
		v = math.Ldexp(1024+fraction, exponent-25)
	}
	if bits>>15 == 1 {
		v = -v
	}
	return v
}
