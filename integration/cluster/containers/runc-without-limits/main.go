// SPDX-License-Identifier: Apache-2.0

// runc for a test host whose cgroup2 hierarchy has no controllers for cpu, memory and pids.
//
// A machine that mounts those controllers as cgroup v1 gives its containers a cgroup2 without them, and runc refuses to
// create a container with limits there. The limits are removed from the config of the container; its access to devices,
// which needs no controller, stays.
package main

import (
	"encoding/json"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const runc = "/usr/sbin/runc"

func main() {
	if slices.Contains(os.Args, "update") {
		return
	}
	if slices.Contains(os.Args, "create") {
		if err := removeLimits(filepath.Join(bundle(os.Args), "config.json")); err != nil {
			log.Fatal(err)
		}
	}
	log.Fatal(syscall.Exec(runc, append([]string{runc}, os.Args[1:]...), os.Environ()))
}

func bundle(args []string) string {
	for i, arg := range args {
		if value, found := strings.CutPrefix(arg, "--bundle="); found {
			return value
		}
		if (arg == "--bundle" || arg == "-b") && i+1 < len(args) {
			return args[i+1]
		}
	}
	return "."
}

func removeLimits(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var config map[string]any
	if err := json.Unmarshal(text, &config); err != nil {
		return err
	}
	if linux, ok := config["linux"].(map[string]any); ok {
		kept := map[string]any{}
		if resources, ok := linux["resources"].(map[string]any); ok && resources["devices"] != nil {
			kept["devices"] = resources["devices"]
		}
		linux["resources"] = kept
	}
	if text, err = json.Marshal(config); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}
