package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestUpToDate checks that the files in the repository are those that this generator writes.
func TestUpToDate(t *testing.T) {
	for name, want := range files() {
		got, err := os.ReadFile(filepath.Join("../../host/compute/matmul", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not up to date: go generate ./host/compute/matmul", name)
		}
	}
}

// TestEncoding compares encodings with GNU as for `vdpbf16ps %zmm<right>, %zmm<left>, %zmm<sum>`.
func TestEncoding(t *testing.T) {
	for _, c := range []struct {
		sum, left, right int
		want             string
	}{
		{0, 1, 2, "LONG $0x4876f262; WORD $0xc252"},
		{7, 15, 8, "LONG $0x4806d262; WORD $0xf852"},
		{8, 16, 7, "LONG $0x407e7262; WORD $0xc752"},
		{23, 29, 25, "LONG $0x40168262; WORD $0xf952"},
		{31, 31, 31, "LONG $0x40060262; WORD $0xff52"},
		{16, 0, 24, "LONG $0x487e8262; WORD $0xc052"},
	} {
		if got := vdpbf16ps(c.sum, c.left, c.right); !strings.HasPrefix(got, c.want+" ") {
			t.Errorf("VDPBF16PS Z%d, Z%d, Z%d is %s, want %s", c.right, c.left, c.sum, got, c.want)
		}
	}
	// The same for vcvtne2ps2bf16 %zmm2, %zmm3, %zmm4.
	if got, want := vcvtne2ps2bf16(4, 3, 2), "LONG $0x4867f262; WORD $0xe272 "; !strings.HasPrefix(got,
		want) {
		t.Errorf("VCVTNE2PS2BF16 Z2, Z3, Z4 is %s, want %s", got, want)
	}
}

var encoded = regexp.MustCompile(`// (\w+) Z(\d+), Z(\d+), Z(\d+)`)

var directive = regexp.MustCompile(`(?:LONG|WORD|BYTE) \$0x([0-9a-f]+)`)

// TestEncodingsByAssembler compares the encodings for all registers with GNU as, if installed.
func TestEncodingsByAssembler(t *testing.T) {
	for _, tool := range []string{"as", "objcopy"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	var source, want bytes.Buffer
	number := func(instruction string) {
		for _, m := range directive.FindAllStringSubmatch(instruction, -1) {
			for i := len(m[1]) - 2; i >= 0; i -= 2 {
				b, err := strconv.ParseUint(m[1][i:i+2], 16, 8)
				if err != nil {
					t.Fatal(err)
				}
				want.WriteByte(byte(b))
			}
		}
	}
	for to := range 32 {
		for i := range 64 {
			first, second := i/2, (i/2*7+to)%32
			instruction := vdpbf16ps(to, first, second)
			if i%2 == 1 {
				instruction = vcvtne2ps2bf16(to, first, second)
			}
			m := encoded.FindStringSubmatch(instruction)
			number(instruction)
			source.WriteString(strings.ToLower(m[1]) + " %zmm" + m[2] + ", %zmm" + m[3] + ", %zmm" + m[4] +
				"\n")
		}
	}
	for tile := range 8 {
		number(tileZero(tile))
		fmt.Fprintf(&source, "tilezero %%tmm%d\n", tile)
		for i := range 64 {
			left, right := i/8, i%8
			number(tdpbf16ps(tile, left, right))
			number(tdpbssd(tile, left, right))
			fmt.Fprintf(&source,
				"tdpbf16ps %%tmm%d, %%tmm%d, %%tmm%d\ntdpbssd %%tmm%[1]d, %%tmm%d, %%tmm%d\n", right, left,
				tile)
		}
		for base := range numbers {
			for step := range numbers {
				// For a small offset, the assembler would choose a shorter encoding.
				number(tileLoad(tile, base, step, -4096))
				number(tileStore(tile, base, step, 1<<20))
				number(tileLoadOnce(tile, base, step, 256))
				name := func(r string) string {
					if r[0] == 'R' {
						return strings.ToLower(r)
					}
					return "r" + strings.ToLower(r)
				}
				fmt.Fprintf(&source, "tileloadd -4096(%%%s,%%%s,1), %%tmm%d\ntilestored %%tmm%[3]d, "+
					"0x100000(%%%[1]s,%%%[2]s,1)\ntileloaddt1 256(%%%[1]s,%%%[2]s,1), %%tmm%[3]d\n", name(base),
					name(step), tile)
			}
		}
	}
	dir := t.TempDir()
	object, code := filepath.Join(dir, "x.o"), filepath.Join(dir, "x.bin")
	as := exec.Command("as", "-o", object, "-")
	as.Stdin = &source
	if out, err := as.CombinedOutput(); err != nil {
		t.Skipf("as does not know the instruction: %v\n%s", err, out)
	}
	if out, err := exec.Command("objcopy", "-O", "binary", "-j", ".text", object, code).
		CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := os.ReadFile(code)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("as writes other bytes")
	}
}
