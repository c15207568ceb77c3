// SPDX-License-Identifier: Apache-2.0

// The unchanged etcd server of the previous minor release, which clusters still run.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
