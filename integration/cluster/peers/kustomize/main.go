// SPDX-License-Identifier: Apache-2.0

// `kubectl kustomize DIRECTORY`, with the library that kubectl uses for it.
package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func main() {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), os.Args[1])
	if err == nil {
		var text []byte
		if text, err = resources.AsYaml(); err == nil {
			os.Stdout.Write(text)
			return
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
