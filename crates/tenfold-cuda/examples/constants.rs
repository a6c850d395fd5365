//! Prints the header with the numbers of the format, for `make ptx`.

fn main() {
    print!("{}", tenfold_cuda::constants::header());
}
