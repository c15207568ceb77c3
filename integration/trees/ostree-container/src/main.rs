// SPDX-License-Identifier: Apache-2.0
#[tokio::main]
async fn main() {
    if let Err(error) = ostree_ext::cli::run_from_iter(std::env::args_os()).await {
        // One line, as bootc and rpm-ostree print it.
        eprintln!("error: {error:#}");
        std::process::exit(1);
    }
}
