// SPDX-License-Identifier: Apache-2.0

// Butane's own translation with the options of `butane --strict [--files-dir DIR] FILE`, as a Go tool.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/coreos/butane/config"
	"github.com/coreos/butane/config/common"
)

func main() {
	flag.Bool("strict", true, "fail on any warning")
	files := flag.String("files-dir", "", "directory of local files")
	flag.Parse()
	if err := translate(flag.Arg(0), *files); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func translate(path, files string) error {
	input, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	options := common.TranslateBytesOptions{TranslateOptions: common.TranslateOptions{FilesDir: files}}
	output, report, err := config.TranslateBytes(input, options)
	if err == nil && len(report.Entries) > 0 {
		err = fmt.Errorf("%s", report.String())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	_, err = os.Stdout.Write(output)
	return err
}
