package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// made makes a wheel of cage-torch with binaries that are none, and returns its name and content.
func made(t *testing.T) (name string, content []byte) {
	t.Helper()
	d, err := read(torchDir)
	if err != nil {
		t.Fatal(err)
	}
	d.files[d.stem()+".data/scripts/cage"] = []byte("cage")
	dir := t.TempDir()
	if err := d.write(dir, []string{"manylinux_2_17_x86_64", "manylinux2014_x86_64"}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	content, err = os.ReadFile(filepath.Join(dir, entries[0].Name()))
	if err != nil {
		t.Fatal(err)
	}
	return entries[0].Name(), content
}

// TestWheel checks the name, the files, the digests and the modes of a wheel, and that two are
// identical.
func TestWheel(t *testing.T) {
	t.Chdir("../..")
	name, content := made(t)
	if want := "cage_torch-0.1.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"; name != want {
		t.Errorf("got %s, want %s", name, want)
	}
	if _, again := made(t); !bytes.Equal(content, again) {
		t.Error("two wheels differ")
	}
	z, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	const info = "cage_torch-0.1.0.dist-info/"
	files := map[string]string{}
	var record strings.Builder
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name] = string(data)
		sum := sha256.Sum256(data)
		if f.Name == info+"RECORD" {
			fmt.Fprintf(&record, "%s,,\n", f.Name)
		} else {
			fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.Name,
				base64.RawURLEncoding.EncodeToString(sum[:]), len(data))
		}
		if executable := f.Mode()&0o111 != 0; executable != strings.HasSuffix(f.Name, "/cage") {
			t.Errorf("%s has the mode %v", f.Name, f.Mode())
		}
	}
	if got := files[info+"RECORD"]; got != record.String() {
		t.Errorf("RECORD is\n%s\nwant\n%s", got, &record)
	}
	for file, says := range map[string]string{
		info + "WHEEL": "Root-Is-Purelib: false\nTag: py3-none-manylinux_2_17_x86_64\n" +
			"Tag: py3-none-manylinux2014_x86_64\n",
		info + "METADATA":         "\nRequires-Dist: torch>=2.6\n",
		info + "licenses/LICENSE": "Apache License",
		"cage_torch/__init__.py":  "__all__",
		"cage_torch/py.typed":     "",
	} {
		if text, ok := files[file]; !ok || !strings.Contains(text, says) {
			t.Errorf("%s is %.200q, want %q", file, text, says)
		}
	}
	if meta := files[info+"METADATA"]; !strings.Contains(meta, "\nProvides-Extra: test\n") ||
		!strings.Contains(meta, `Requires-Dist: pytest; extra == "test"`) {
		t.Errorf("METADATA is %s", meta)
	}
	for file := range maps.Keys(files) {
		if strings.Contains(file, "__pycache__") || strings.Contains(file, "test") {
			t.Errorf("there is %s", file)
		}
	}
}

// TestPlatforms checks the tags of platforms; those of macOS name the system that the binary needs.
func TestPlatforms(t *testing.T) {
	words := []uint32{0xfeedfacf, 0x0100000c, 0, 2, 1, 24, 0, 0, // the header: 64 bits, ARM
		0x32, 24, 1, 13<<16 | 2<<8, 26 << 16, 0} // LC_BUILD_VERSION
	mach, err := binary.Append(nil, binary.LittleEndian, words)
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string][]string{
		"linux_arm64":   {"manylinux_2_17_aarch64", "manylinux2014_aarch64"},
		"darwin_arm64":  {"macosx_13_2_arm64"},
		"windows_amd64": nil,
	} {
		got, err := platformsOf(target, mach)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%s: %v, %v", target, got, err)
		}
	}
	if got, err := platformsOf("darwin_amd64", []byte("ELF")); err == nil {
		t.Errorf("a file that is no binary of macOS: %v", got)
	}
}
