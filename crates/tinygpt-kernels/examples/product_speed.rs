use std::time::Instant;
use tinygpt_kernels::{Cpu, Isa, gemm::{Mat, Start, product}, reference::random, Buffer};
fn main() {
    let cpu = Cpu::new(0, Isa::best());
    let shapes = [("char qkv fwd", 2048, 384, 1152, 'f'), ("char fc fwd", 2048, 384, 1536, 'f'), ("char proj fwd",2048,1536,384,'f'), ("char fc dx", 2048,1536,384,'x'), ("char fc dw",1536,2048,384,'w'),("char proj dw",384,2048,1536,'w'),
      ("quick qkv fwd", 768,128,384,'f'),("quick fc dw",512,768,128,'w'),("quick fc dx",768,512,128,'x'),("gpt2 fc",1024,768,3072,'f'),("head",1024,768,50304,'f')];
    for (name, m, k, n, kind) in shapes {
        let (ad, bd) = (random(1, m*k), random(2, k*n));
        let (mut a, mut b, mut c) = (Buffer::zeros(m*k), Buffer::zeros(k*n), Buffer::zeros(m*n));
        a.copy_from_slice(&ad); b.copy_from_slice(&bd);
        let flop = 2.0*(m*k*n) as f64;
        let reps = (2e9/flop).max(3.0) as usize;
        let am = if kind=='w' { Mat::rows(&a, m).transposed() } else { Mat::rows(&a, k) };
        let bm = if kind=='f' { Mat::rows(&b, k).transposed() } else { Mat::rows(&b, n) };
        let mut ts: Vec<f64> = (0..7).map(|_| { let t=Instant::now(); for _ in 0..reps { product(&cpu, &mut c, am, bm, (m,k,n), Start::Zero);} t.elapsed().as_secs_f64()/reps as f64}).collect();
        ts.sort_by(f64::total_cmp);
        let ours = flop/ts[3]/1e9;
        let (rs_a, cs_a) = if kind=='w' {(1, m as isize)} else {(k as isize,1)};
        let (rs_b, cs_b) = if kind=='f' {(1, k as isize)} else {(n as isize,1)};
        let mut ts: Vec<f64> = (0..7).map(|_| { let t=Instant::now(); for _ in 0..reps { unsafe { gemm::gemm(m,n,k,c.as_mut_ptr(),1,n as isize,false,a.as_ptr(),cs_a,rs_a,b.as_ptr(),cs_b,rs_b,0.0,1.0,false,false,false,gemm::Parallelism::Rayon(0)); } } t.elapsed().as_secs_f64()/reps as f64}).collect();
        ts.sort_by(f64::total_cmp);
        println!("{name:16} {m}x{k}x{n} {kind}: ours {ours:.0} GFLOP/s  gemm crate {:.0}", flop/ts[3]/1e9);
    }
}
