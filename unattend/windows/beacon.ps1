# Reports the state of Windows on the first serial port, for a quarter of an hour after the bootstrap and after each
# start. If Windows does not answer, this shows whether it is running. bootstrap.ps1 makes it a task.
# Windows PowerShell 5.1.
param([int]$Lines = 30, [int]$Pause = 30) # seconds
$ErrorActionPreference = 'SilentlyContinue'
# Counts starts, as in status.ps1
$counter = 'HKLM:\SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters'

# The system's last error, with its time: it may be from an earlier start. A message may have many lines, or none
function Get-Failure {
    $last = Get-WinEvent -FilterHashtable @{ LogName = 'System'; Level = 1, 2 } -MaxEvents 1
    if (-not $last) { return '' }
    $when = $last.TimeCreated.ToUniversalTime().ToString('s')
    $text = "event=$($last.Id) ${when}Z $($last.ProviderName): $($last.Message)" -replace '\s+', ' '
    return " $($text.Substring(0, [math]::Min($text.Length, 200)).Trim())"
}

function Get-Line {
    $addresses = @(Get-NetIPAddress -AddressFamily IPv4 | Where-Object { $_.IPAddress -ne '127.0.0.1' } |
            ForEach-Object { "$($_.IPAddress)" }) -join ','
    $hops = @(Get-NetRoute -DestinationPrefix '0.0.0.0/0' | ForEach-Object { "$($_.NextHop)" }) -join ','
    $services = @(foreach ($name in 'WinRM', 'sshd', 'hns', 'containerd', 'kubelet', 'kube-proxy') {
            $service = Get-Service -Name $name
            if ($service) { "$name=$($service.Status)" }
        }) -join ' '
    $networks = ''
    if (Get-Command -Name 'Get-HnsNetwork') { $networks = @(Get-HnsNetwork | ForEach-Object { $_.Name }) -join ',' }
    $free = [math]::Floor((Get-PSDrive -Name 'C').Free / 1MB)
    $boot = (Get-ItemProperty -Path $counter).BootId
    $own = "LocalAccount=True AND SID LIKE 'S-1-5-21-%-500'"
    $locked = if ((Get-CimInstance -ClassName Win32_UserAccount -Filter $own).Lockout) { ' account=locked' } else { '' }
    return "addresses=$addresses gateway=$hops $services networks=$networks free=${free}MB boot=$boot" +
        "$locked$(Get-Failure)"
}

# An automatic start is not always enough: a virtual switch disturbs the network at that time. If WinRM has run and does
# not run now, someone stopped it deliberately
$hasRun = $false
function Start-WinRM([int]$Line) {
    $service = Get-Service -Name 'WinRM'
    if ("$($service.Status)" -eq 'Running') { $script:hasRun = $true }
    if ($script:hasRun -or $Line -lt 3 -or "$($service.StartType)" -ne 'Automatic') { return }
    Start-Service -Name 'WinRM'
}

for ($line = 1; $line -le $Lines; $line++) {
    Start-WinRM $line
    $text = "winlab: beacon $line $(Get-Line)"
    for ($try = 1; $try -le 5; $try++) {
        try {
            $port = New-Object System.IO.Ports.SerialPort 'COM1', 115200
            $port.WriteTimeout = 2000
            $port.Open()
            $port.WriteLine($text)
            $port.Close()
            break
        } catch {
            Start-Sleep -Seconds 2 # only one program can have it open
        }
    }
    if ($line -lt $Lines) { Start-Sleep -Seconds $Pause }
}
